// tests/kernel/norm_test.cpp: rmsnorm, bias gradient, embedding and rope.
#include <fmt/core.h>

#include "tests/kernel/common.h"

namespace weft {
namespace {

struct RmsNormCase {
  int64_t R, C;
  Dtype dtype, grad_dtype;
  bool residual, dweight, accumulate;
  int weight_offset = 0;
  std::string text() const {
    return fmt::format("R {} C {} {} grad {} residual {} dweight {} accumulate {} offset {}", R, C,
                       dtype_name(dtype), dtype_name(grad_dtype), residual, dweight, accumulate,
                       weight_offset);
  }
};

std::vector<RmsNormCase> rmsnorm_cases() {
  std::vector<RmsNormCase> list;
  for (const Dtype dtype : kAllTypes) {
    const Dtype grad_dtype = gradient_types(dtype).back();
    list.push_back({1, 1, dtype, Dtype::kF32, false, true, false});
    list.push_back({3, 7, dtype, grad_dtype, true, true, true});
    list.push_back({65, 50, dtype, Dtype::kF32, true, true, false});
    list.push_back({130, 96, dtype, grad_dtype, false, true, true});
    list.push_back({9, 1031, dtype, Dtype::kF32, true, false, false});
    list.push_back({700, 18, dtype, grad_dtype, true, true, false});
    list.push_back({5, 896, dtype, grad_dtype, true, true, true});
    list.push_back({7, 2056, dtype, Dtype::kF32, true, true, false});
    list.push_back({3, 8192, dtype, grad_dtype, true, true, true});
    list.push_back({2, 9001, dtype, Dtype::kF32, true, true, false});
    list.push_back({3, 7, dtype, grad_dtype, true, true, true, 1});
    list.push_back({130, 96, dtype, Dtype::kF32, false, true, true, 1});
    list.push_back({9, 1031, dtype, grad_dtype, true, false, false, 1});
    list.push_back({3, 2056, dtype, Dtype::kF32, true, true, false, 1});
  }
  return list;
}

Outputs norm(const RmsNormCase& c, const Buffer& x, const Buffer& residual, const Buffer& weight,
             const Kernels& kernels, Bench& bench) {
  Buffer sum(c.dtype, c.R * c.C), y(c.dtype, c.R * c.C), rstd(Dtype::kF32, c.R);
  RmsNormArgs args = {.R = c.R,
                      .C = c.C,
                      .dtype = c.dtype,
                      .eps = 1e-5f,
                      .x = x.data(),
                      .residual = c.residual ? residual.data() : nullptr,
                      .weight = weight.data(),
                      .sum = sum.data(),
                      .y = y.data(),
                      .rstd = rstd.floats(),
                      .reuse_rstd = false,
                      .weight_offset = c.weight_offset};
  kernels.rmsnorm(bench.context(0), args);
  // Recomputation from the sum gives the same bits.
  Buffer again(c.dtype, c.R * c.C);
  args.x = sum.data();
  args.residual = nullptr;
  args.sum = nullptr;
  args.y = again.data();
  args.reuse_rstd = true;
  kernels.rmsnorm(bench.context(0), args);
  EXPECT_TRUE(again.same_bits(y)) << c.text() << " " << kernels.name;
  return {sum, y, rstd};
}

Outputs norm_backward(const RmsNormCase& c, const Buffer& dy, const Buffer& s, const Buffer& weight,
                      const Buffer& rstd, const Kernels& kernels, Bench& bench) {
  Buffer dx = Buffer::random(c.dtype, c.R * c.C, 9);  // dsum, overwritten in place
  Buffer dweight = Buffer::random(c.grad_dtype, c.C, 10);
  const RmsNormBackwardArgs args = {.R = c.R,
                                    .C = c.C,
                                    .dtype = c.dtype,
                                    .grad_dtype = c.grad_dtype,
                                    .dy = dy.data(),
                                    .dsum = c.residual ? dx.data() : nullptr,
                                    .s = s.data(),
                                    .weight = weight.data(),
                                    .rstd = rstd.floats(),
                                    .dx = dx.data(),
                                    .dweight = c.dweight ? dweight.data() : nullptr,
                                    .accumulate = c.accumulate,
                                    .weight_offset = c.weight_offset};
  const size_t bytes = kernels.rmsnorm_backward_workspace(args, bench.num_threads());
  kernels.rmsnorm_backward(bench.context(bytes), args);
  return {dx, dweight};
}

TEST(RmsNorm, EveryLevelAgreesWithRef) {
  for (const RmsNormCase& c : rmsnorm_cases()) {
    const Buffer x = Buffer::random(c.dtype, c.R * c.C, 1);
    const Buffer residual = Buffer::random(c.dtype, c.R * c.C, 2);
    const Buffer weight = Buffer::random(c.dtype, c.C, 3);
    compare_levels(
        "rmsnorm " + c.text(), c.dtype,
        [&](const Kernels& k, Bench& b) { return norm(c, x, residual, weight, k, b); },
        [&](size_t output) { return tolerance_of(output == 2 ? Dtype::kF32 : c.dtype); });
  }
}

TEST(RmsNorm, EveryLevelsGradientAgreesWithRef) {
  for (const RmsNormCase& c : rmsnorm_cases()) {
    const Buffer dy = Buffer::random(c.dtype, c.R * c.C, 1);
    const Buffer s = Buffer::random(c.dtype, c.R * c.C, 2);
    const Buffer weight = Buffer::random(c.dtype, c.C, 3);
    Buffer rstd(Dtype::kF32, c.R);
    for (int64_t r = 0; r < c.R; ++r) rstd.set(r, 0.5 + 0.01 * static_cast<double>(r));
    compare_levels(
        "rmsnorm gradient " + c.text(), c.dtype,
        [&](const Kernels& k, Bench& b) { return norm_backward(c, dy, s, weight, rstd, k, b); },
        [&](size_t output) { return tolerance_of(output == 0 ? c.dtype : c.grad_dtype); });
  }
}

TEST(RmsNorm, GradientOfRefIsTheDifference) {
  for (const int weight_offset : {0, 1}) {
    const RmsNormCase c = {2, 6, Dtype::kF32, Dtype::kF32, false, true, false, weight_offset};
    Buffer x = Buffer::random(c.dtype, c.R * c.C, 1);
    Buffer weight = Buffer::random(c.dtype, c.C, 3);
    const Buffer dy = Buffer::random(c.dtype, c.R * c.C, 2);
    Bench bench(1);
    const auto loss = [&] {
      const Outputs result = norm(c, x, x, weight, ref_kernels(), bench);
      double sum = 0.0;
      for (int64_t i = 0; i < dy.size(); ++i) sum += dy[i] * result[1][i];
      return sum;
    };
    const Buffer rstd = norm(c, x, x, weight, ref_kernels(), bench)[2];
    const Outputs gradient = norm_backward(c, dy, x, weight, rstd, ref_kernels(), bench);
    expect_differences(x, loss, gradient[0], "dx");
    expect_differences(weight, loss, gradient[1], "dweight");
  }
}

// transformers' Gemma3RMSNorm on torch 2.15: rows and weights below, and their gradients for
// kGemmaDy.
constexpr double kGemmaX[] = {0.5, -1.25, 2, 0.125, -0.75, 3};
constexpr double kGemmaWeight[] = {0.1, -0.2, 0.3, 0, 0.5, -1.5};
constexpr double kGemmaDy[] = {1, 2, -1, 0.5, 1.5, -2};
constexpr double kGemmaY[] = {0.34340775,   -0.624377728, 1.62338209,
                              0.0780472159, -0.702424943, -0.936566591};
constexpr double kGemmaDx[] = {0.741076112, 0.863352776, -0.59464854,
                               0.325754017, 1.32345891,  0.949941456};
constexpr double kGemmaDweight[] = {0.312188864, -1.56094432,  -1.24875546,
                                    0.039023608, -0.702424943, -3.74626637};

TEST(RmsNorm, WithAnOffsetItHasTheValuesOfGemma) {
  const RmsNormCase c = {1, 6, Dtype::kF32, Dtype::kF32, false, true, false, 1};
  Buffer x(c.dtype, 6), weight(c.dtype, 6), dy(c.dtype, 6);
  for (int64_t i = 0; i < 6; ++i) {
    x.set(i, kGemmaX[i]);
    weight.set(i, kGemmaWeight[i]);
    dy.set(i, kGemmaDy[i]);
  }
  Bench bench(1);
  std::vector<const Kernels*> all = tested_kernels();
  all.push_back(&ref_kernels());
  for (const Kernels* k : all) {
    const Outputs got = norm(c, x, x, weight, *k, bench);
    const Outputs gradient = norm_backward(c, dy, x, weight, got[2], *k, bench);
    for (int64_t i = 0; i < 6; ++i) {
      EXPECT_NEAR(got[1][i], kGemmaY[i], 1e-5) << k->name;  // its eps is 1e-6, ours here 1e-5
      EXPECT_NEAR(gradient[0][i], kGemmaDx[i], 1e-5) << k->name;
      EXPECT_NEAR(gradient[1][i], kGemmaDweight[i], 1e-5) << k->name;
    }
  }
}

// In bf16 one rounding: (x rstd) (1 + w) at a place where rounding x rstd first, or 1 + w, would
// give another number. x rstd is 1 / sqrt(1 + 2^-8), with 1 + w = 1 + 2^-9.
TEST(RmsNorm, AnOffsetIsNotRoundedBeforeTheProduct) {
  const int64_t C = 40;
  Bench bench(1);
  for (const Kernels* k : tested_kernels(Dtype::kBf16)) {
    const RmsNormCase c = {1, C, Dtype::kBf16, Dtype::kF32, false, true, false, 1};
    Buffer x(c.dtype, C);
    for (int64_t i = 0; i < C; ++i) x.set(i, i % 2 == 0 ? 1.0 : 1.0078125);
    const Buffer weight = Buffer::filled(c.dtype, C, 0x1p-9);
    const Outputs got = norm(c, x, x, weight, *k, bench);
    int64_t others = 0;
    for (int64_t i = 0; i < C; ++i) {
      const auto rounded = [](double v) {
        Buffer one(Dtype::kBf16, 1);
        one.set(0, v);
        return one[0];
      };
      const double normed = x[i] * got[2][0];
      EXPECT_EQ(got[1][i], rounded(normed * (1 + weight[i]))) << k->name;
      others += got[1][i] != rounded(rounded(normed) * rounded(1 + weight[i]));
    }
    EXPECT_GT(others, 0) << "the case does not tell the two ways apart";
  }
}

TEST(BiasBackward, EveryLevelAgreesWithRef) {
  for (const Dtype dtype : kAllTypes) {
    for (const Dtype grad_dtype : gradient_types(dtype)) {
      for (const int64_t R : {1, 64, 131, 1000}) {
        const int64_t cols[3] = {5, 70, 13};
        const Buffer dy = Buffer::random(dtype, R * 88, 1);
        compare_levels(
            fmt::format("bias R {} {} {}", R, dtype_name(dtype), dtype_name(grad_dtype)), dtype,
            [&](const Kernels& kernels, Bench& bench) {
              Outputs db;
              for (const int64_t n : cols) db.push_back(Buffer::random(grad_dtype, n, 2));
              const BiasBackwardArgs args = {.R = R,
                                             .N = 88,
                                             .dtype = dtype,
                                             .grad_dtype = grad_dtype,
                                             .dy = dy.data(),
                                             .db = {db[0].data(), db[1].data(), db[2].data()},
                                             .cols = {cols[0], cols[1], cols[2]},
                                             .count = 3,
                                             .accumulate = R == 64};
              const size_t bytes = kernels.bias_backward_workspace(args, bench.num_threads());
              kernels.bias_backward(bench.context(bytes), args);
              return db;
            },
            [&](size_t output) { return tolerance_of(output == 0 ? dtype : grad_dtype); });
      }
    }
  }
}

TEST(Embedding, EveryLevelAgreesWithRef) {
  const int64_t V = 11;
  for (const Dtype dtype : kAllTypes) {
    for (const int64_t C : {3, 64, 300}) {
      TestVector<int32_t> ids;
      for (int i = 0; i < 150; ++i) ids.push_back(i * i % 9);  // ids 9 and 10 never appear
      const int64_t R = static_cast<int64_t>(ids.size());
      const Buffer table = Buffer::random(dtype, V * C, 1);
      const Buffer dout = Buffer::random(dtype, R * C, 2);
      for (const bool accumulate : {false, true}) {
        const Dtype grad_dtype = accumulate ? Dtype::kF32 : gradient_types(dtype).back();
        compare_levels(
            fmt::format("embedding C {} {}", C, dtype_name(dtype)), dtype,
            [&](const Kernels& kernels, Bench& bench) {
              Buffer out(dtype, R * C);
              kernels.embedding(bench.context(0), {.R = R,
                                                   .C = C,
                                                   .V = V,
                                                   .dtype = dtype,
                                                   .ids = ids.data(),
                                                   .table = table.data(),
                                                   .out = out.data()});
              Buffer dtable = Buffer::random(grad_dtype, V * C, 3);
              const EmbeddingBackwardArgs args = {.R = R,
                                                  .C = C,
                                                  .V = V,
                                                  .dtype = dtype,
                                                  .grad_dtype = grad_dtype,
                                                  .ids = ids.data(),
                                                  .padding_id = accumulate ? 4 : -1,
                                                  .dout = dout.data(),
                                                  .dtable = dtable.data(),
                                                  .accumulate = accumulate};
              const size_t bytes = kernels.embedding_backward_workspace(args, bench.num_threads());
              kernels.embedding_backward(bench.context(bytes), args);
              return Outputs{out, dtable};
            },
            [&](size_t output) { return tolerance_of(output == 0 ? dtype : grad_dtype); });
      }
    }
  }
}

// A part of a table, many tokens, one id that half of them have, and padding.
TEST(Embedding, EveryLevelAgreesWithRefOnAPartOfATable) {
  const int64_t R = 900, V = 40, C = 40, first_id = 30;
  TestVector<int32_t> ids;
  for (int i = 0; i < R; ++i) ids.push_back(i % 2 == 0 ? 50 : i * 7 % 97);
  for (const Dtype dtype : kAllTypes) {
    const Buffer table = Buffer::random(dtype, V * C, 1), dout = Buffer::random(dtype, R * C, 2);
    const Dtype grad_dtype = gradient_types(dtype).back();
    for (const bool keep : {false, true}) {
      compare_levels(
          fmt::format("part of an embedding {} keep {}", dtype_name(dtype), keep), dtype,
          [&](const Kernels& kernels, Bench& bench) {
            Buffer out = Buffer::random(dtype, R * C, 3);
            kernels.embedding(bench.context(0), {.R = R,
                                                 .C = C,
                                                 .V = V,
                                                 .dtype = dtype,
                                                 .ids = ids.data(),
                                                 .table = table.data(),
                                                 .out = out.data(),
                                                 .first_id = first_id,
                                                 .keep_others = keep});
            Buffer dtable = Buffer::random(grad_dtype, V * C, 4);
            const EmbeddingBackwardArgs args = {.R = R,
                                                .C = C,
                                                .V = V,
                                                .dtype = dtype,
                                                .grad_dtype = grad_dtype,
                                                .ids = ids.data(),
                                                .padding_id = 33,
                                                .dout = dout.data(),
                                                .dtable = dtable.data(),
                                                .accumulate = keep,
                                                .first_id = first_id};
            const size_t bytes = kernels.embedding_backward_workspace(args, bench.num_threads());
            kernels.embedding_backward(bench.context(bytes), args);
            return Outputs{out, dtable};
          },
          tolerance_of(dtype));
    }
  }
}

TEST(Rope, EveryLevelAgreesWithRef) {
  for (const Dtype dtype : kAllTypes) {
    for (const int64_t D : {2, 8, 10, 64, 80}) {
      const int64_t R = 14, T = 7, H = 3, G = 1, half = D / 2;
      Buffer cosine(Dtype::kF32, 20 * half), sine(Dtype::kF32, 20 * half);
      for (int64_t i = 0; i < 20 * half; ++i) {
        cosine.set(i, std::cos(0.1 * static_cast<double>(i)));
        sine.set(i, std::sin(0.1 * static_cast<double>(i)));
      }
      TestVector<int32_t> positions;
      for (int32_t r = 0; r < R; ++r) positions.push_back((5 * r + 3) % 20);
      const Buffer qkv = Buffer::random(dtype, R * (H + 2 * G) * D, 1);
      for (const bool inverse : {false, true}) {
        compare_levels(
            fmt::format("rope D {} {} inverse {}", D, dtype_name(dtype), inverse), dtype,
            [&](const Kernels& kernels, Bench& bench) {
              Buffer turned = qkv;
              kernels.rope(bench.context(0), {.R = R,
                                              .T = T,
                                              .H = H,
                                              .G = G,
                                              .D = D,
                                              .dtype = dtype,
                                              .qkv = turned.data(),
                                              .cosine = cosine.floats(),
                                              .sine = sine.floats(),
                                              .positions = inverse ? positions.data() : nullptr,
                                              .inverse = inverse});
              return Outputs{turned};
            },
            tolerance_of(dtype));
      }
    }
  }
}

}  // namespace
}  // namespace weft
