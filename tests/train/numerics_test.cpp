// tests/train/numerics_test.cpp: the fingerprint changes with anything that changes bits.
#include "train/numerics.h"

#include <gtest/gtest.h>

#include <cmath>

namespace weft {
namespace {

// One step of rounding elsewhere in one kernel, under the same name.
void nudged_swiglu(const Context& context, const SwigluArgs& args) {
  ref_kernels().swiglu(context, args);
  store_element(args.h, args.dtype, 7, load_element(args.h, args.dtype, 7) * 1.01f);
}
void nudged_gemm(const Context& context, const GemmArgs& args) {
  ref_kernels().gemm(context, args);
  auto* c = static_cast<float*>(args.c.part[0]);
  c[3] = std::nextafter(c[3], 1e9f);
}
void nudged_attention(const Context& context, const AttentionArgs& args) {
  ref_kernels().attention(context, args);
  args.lse[0] = std::nextafter(args.lse[0], 1e9f);
}

TEST(Numerics, TheProbeIsRepeatableAndDistinguishesKernels) {
  for (const Dtype dtype : {Dtype::kF32, Dtype::kBf16}) {
    const std::string plain = probe_kernels(ref_kernels(), dtype);
    EXPECT_EQ(plain, probe_kernels(ref_kernels(), dtype));
    EXPECT_EQ(plain.size(), 16u);
    Kernels swiglu = ref_kernels(), gemm = swiglu, attention = swiglu;
    swiglu.swiglu = nudged_swiglu;
    gemm.gemm = nudged_gemm;
    attention.attention = nudged_attention;
    for (const Kernels* changed : {&swiglu, &gemm, &attention}) {
      EXPECT_NE(probe_kernels(*changed, dtype), plain);
    }
  }
  EXPECT_NE(probe_kernels(ref_kernels(), Dtype::kF32), probe_kernels(ref_kernels(), Dtype::kBf16));
  EXPECT_EQ(probe_kernels(cpu_kernels(), Dtype::kF32), probe_kernels(cpu_kernels(), Dtype::kF32));
}

TEST(Numerics, EveryKeyMatters) {
  RunConfig c;
  Layout layout;
  const Json plain = numerics_fingerprint(c, layout, ref_kernels());
  for (const char* key : {"weft", "version", "kernels", "precision", "tf32", "master_weights",
                          "mode", "exact_tp", "exact_dp", "exact_rows", "probe"}) {
    EXPECT_TRUE(plain.find(key)) << key;
  }
  EXPECT_TRUE(plain.at("exact_tp").is_null());
  layout.dp = 4;  // fast mode: the layout is not part of it
  EXPECT_EQ(numerics_fingerprint(c, layout, ref_kernels()), plain);
  RunConfig bf16 = c, pure = c;
  bf16.train.precision = pure.train.precision = "bf16";
  pure.train.master_weights = false;
  const Json with_masters = numerics_fingerprint(bf16, layout, ref_kernels());
  EXPECT_NE(with_masters, plain);
  EXPECT_NE(with_masters, numerics_fingerprint(pure, layout, ref_kernels()));
  Layout exact;
  exact.is_exact = true;
  exact.exact_tp = 2;
  Layout other = exact;
  other.exact_dp = 8;
  const Json first = numerics_fingerprint(c, exact, ref_kernels());
  EXPECT_NE(first, plain);
  EXPECT_NE(first, numerics_fingerprint(c, other, ref_kernels()));
  EXPECT_NE(plain, numerics_fingerprint(c, layout, cpu_kernels()));
}

TEST(Numerics, DifferencesNameBothSides) {
  const Json a(Json::Object{{"kernels", "neon"}, {"version", 1}, {"old", true}});
  const Json b(Json::Object{{"kernels", "ref"}, {"version", 1}, {"new", 3}});
  EXPECT_EQ(numerics_differences(a, "there", b, "here"),
            (std::vector<std::string>{"kernels: neon there, ref here", "old: true there, none here",
                                      "new: none there, 3 here"}));
  EXPECT_TRUE(numerics_differences(a, "there", a, "here").empty());
}

// A level that adds instructions for bf16 computes the same in fp32, and only there.
TEST(Numerics, ALevelOfTheSameFp32IsNotAChange) {
  const auto numerics = [](const char* kernels, const char* precision, const char* probe = "1") {
    return Json(Json::Object{{"version", 2},
                             {"kernels", kernels},
                             {"precision", precision},
                             {"mode", "exact"},
                             {"probe", probe}});
  };
  const auto message_of = [](const Json& before, const Json& now) {
    return other_numerics(Json(Json::Object{{"numerics", before}}), now);
  };
  const std::pair<const char*, const char*> pairs[] = {
      {"neon", "neon_bf16"}, {"avx512", "avx512_bf16"}, {"amx", "avx512"}, {"amx", "avx512_bf16"}};
  for (const auto& [a, b] : pairs) {
    EXPECT_EQ(message_of(numerics(a, "fp32"), numerics(b, "fp32")), "") << a;
    EXPECT_NE(message_of(numerics(a, "bf16"), numerics(b, "bf16")), "") << a;
    // What the kernels really compute decides.
    EXPECT_NE(message_of(numerics(a, "fp32"), numerics(b, "fp32", "2")), "") << a;
  }
  EXPECT_EQ(message_of(numerics("neon", "fp32"), numerics("ref", "fp32")),
            "the bits of this run change at the checkpoint: kernels: neon in the checkpoint, ref "
            "now");
  EXPECT_NE(message_of(numerics("avx2", "fp32"), numerics("avx512", "fp32")), "");
}

}  // namespace
}  // namespace weft
