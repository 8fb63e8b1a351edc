// tests/kernel/attention_cudnn_forms_test.cpp: the forms of attention that cuDNN handles, against
// ref.
//
// cuDNN is what runs on a GPU; elsewhere the built-in kernel and the CPU's levels do.
#include "kernel/gpu/cudnn_rule.h"
#include "tests/kernel/attention_form.h"
#include "tests/kernel/fewer_types.h"

namespace weft {
namespace {

using Form = AttentionForm;

Form self(Form f) {
  f.is_self = true;
  return f;
}

std::vector<Form> cudnn_forms() {
  std::vector<Form> list;
  for (const Dtype dtype : {Dtype::kBf16, Dtype::kF16}) {
    const bool causal = true;
    // To all keys, of the queries' own rows and of others; rows without keys, without queries;
    // lengths around multiples of 64 and 128.
    list.push_back(self({3, 70, 70, 2, 1, 16, dtype, false, 0, {70, 40, 1}}));
    list.push_back({4, 20, 130, 2, 1, 8, dtype, false, 0, {20, 10, 0, 5}, {130, 0, 65, 128}});
    list.push_back({1, 130, 64, 1, 1, 16, dtype, false, 0, {129}, {63}});
    list.push_back({1, 10, 192, 2, 2, 80, dtype, false, 0, {10}, {150}});
    // Windows: of two keys, across blocks, of all keys.
    list.push_back(self({1, 66, 66, 2, 1, 16, dtype, causal, 2, {66}}));
    list.push_back(self({2, 140, 140, 2, 1, 8, dtype, causal, 70, {140, 130}}));
    list.push_back(self({1, 64, 64, 1, 1, 64, dtype, causal, 500, {40}}));
    // Plain, over separate q, k and v.
    list.push_back(self({3, 65, 65, 2, 1, 16, dtype, causal, 0, {65, 40, 0}}));
  }
  return with_fewer_types_under_asan(list);
}

bool suits(const Form& f, const FormInputs& in) {
  AttentionArgs args;
  set_operands(f, in, &args);
  return suits_cudnn(args);
}

// A GPU's cuDNN must not have left it to the built-in kernel.
class AttentionCudnnForms : public testing::Test {
 protected:
  void SetUp() override { testing::internal::CaptureStderr(); }
  void TearDown() override {
    const std::string log = testing::internal::GetCapturedStderr();
    EXPECT_EQ(log.find("rejects attention"), std::string::npos) << log;
  }
};

TEST_F(AttentionCudnnForms, AgreeWithRef) {
  for (const Form& f : cudnn_forms()) {
    const FormInputs in(f);
    const Buffer dout = dout_of(f);
    ASSERT_TRUE(suits(f, in)) << f.text();
    compare_levels(
        "attention " + f.text(), f.dtype,
        [&](const Kernels& kernels, Bench& bench) { return attend(f, in, kernels, bench); },
        [&](size_t output) {
          return output == 0 ? biased_attention_tolerance(f.dtype) : kFloatTolerance;
        });
    Bench bench(1);
    const Outputs result = attend(f, in, ref_kernels(), bench);
    compare_levels(
        "attention gradient " + f.text(), f.dtype,
        [&](const Kernels& kernels, Bench& b) {
          return gradients(f, in, result, dout, kernels, b);
        },
        biased_attention_tolerance(f.dtype));
  }
}

// q, k and v interleaved by heads, as BLOOM's, and packed as q, then kv of the keys: as separate
// ones, and the gradients lie where their tensors do.
TEST_F(AttentionCudnnForms, LayoutsAgree) {
  for (const Dtype dtype : {Dtype::kBf16, Dtype::kF16}) {
    for (const bool causal : {true, false}) {
      const Form f = self({2, 66, 66, 2, 2, 16, dtype, causal, 0, {66, 30}});
      const FormInputs in(f);
      const Buffer dout = dout_of(f);
      const int64_t position = 3 * f.H * f.D, size = f.B * f.T * position;
      const auto each = [&](const auto& fn) {  // (B, T, H, 3, D)
        for (int64_t i = 0; i < f.num_queries(); ++i) fn(i, i / f.D * 3 * f.D + i % f.D);
      };
      Buffer all(dtype, size);
      each([&](int64_t i, int64_t at) {
        all.set(at, in.q[i]), all.set(at + f.D, in.k[i]), all.set(at + 2 * f.D, in.v[i]);
      });
      const auto heads = [&](auto* buffer, int64_t which) {
        using Data = std::remove_pointer_t<decltype(buffer->data())>;
        return StridedHeads<Data>{buffer->at(which * f.D), f.T * position, position, 3 * f.D};
      };
      Bench bench(1);
      const Outputs want = attend(f, in, ref_kernels(), bench);
      const Outputs dwant = gradients(f, in, want, dout, ref_kernels(), bench);
      for (const Kernels* kernels : tested_kernels(dtype)) {
        Buffer out(dtype, f.num_queries()), lse(Dtype::kF32, f.B * f.H * f.T), d(dtype, size);
        const Buffer& packed = all;
        AttentionArgs args;
        set_operands(f, in, &args);
        args.q = heads(&packed, 0), args.k = heads(&packed, 1), args.v = heads(&packed, 2);
        ASSERT_TRUE(suits_cudnn(args));
        args.out = contiguous_heads(out.data(), f.T, f.H, f.D);
        args.lse = lse.floats();
        kernels->attention(bench.context(kernels->attention_workspace(args, 1)), args);
        expect_close(out, want[0], biased_attention_tolerance(dtype), kernels->name);
        AttentionBackwardArgs back;
        static_cast<AttentionOperands&>(back) = args;
        back.out = contiguous_heads<const void>(want[0].data(), f.T, f.H, f.D);
        back.dout = contiguous_heads<const void>(dout.data(), f.T, f.H, f.D);
        back.lse = want[1].floats();
        back.dq = heads(&d, 0), back.dk = heads(&d, 1), back.dv = heads(&d, 2);
        kernels->attention_backward(bench.context(kernels->attention_backward_workspace(back, 1)),
                                    back);
        EXPECT_TRUE(d.guard_intact());
        for (int64_t which = 0; which < 3; ++which) {
          Buffer got(dtype, f.num_queries());
          each([&](int64_t i, int64_t at) { got.set(i, d[at + which * f.D]); });
          expect_close(got, dwant[static_cast<size_t>(which)], biased_attention_tolerance(dtype),
                       fmt::format("{} gradient {}", kernels->name, which));
        }
      }
    }
  }
}

// Row b of a form's tensors.
Buffer row_of(const Buffer& all, int64_t rows, int64_t b) {
  Buffer one(all.dtype(), all.size() / rows);
  for (int64_t i = 0; i < one.size(); ++i) one.set(i, all[b * one.size() + i]);
  return one;
}

// A row alone has the bits that it has in its batch: exact mode needs it of the forms that cuDNN
// has there.
TEST_F(AttentionCudnnForms, ARowsBitsDoNotDependOnItsBatch) {
  for (const Form& f : cudnn_forms()) {
    const FormInputs in(f);
    const Buffer dout = dout_of(f);
    for (const Kernels* kernels : tested_kernels(f.dtype)) {
      Bench bench(1);
      const Outputs all = attend(f, in, *kernels, bench);
      const Outputs dall = gradients(f, in, all, dout, *kernels, bench);
      for (int64_t b = 0; b < f.B; ++b) {
        Form one = f;
        one.B = 1;
        one.lengths = {f.lengths[static_cast<size_t>(b)]};
        if (!f.is_self) one.source_lengths = {f.source_lengths[static_cast<size_t>(b)]};
        FormInputs row(one);
        row.q = row_of(in.q, f.B, b), row.k = row_of(in.k, f.B, b), row.v = row_of(in.v, f.B, b);
        const Outputs got = attend(one, row, *kernels, bench);
        const Outputs dgot = gradients(one, row, got, row_of(dout, f.B, b), *kernels, bench);
        const std::string where = fmt::format("{} row {} of {}", kernels->name, b, f.text());
        for (size_t i = 0; i < 2; ++i) {
          EXPECT_TRUE(got[i].same_bits(row_of(all[i], f.B, b))) << where << ", output " << i;
        }
        for (size_t i = 0; i < 3; ++i) {
          EXPECT_TRUE(dgot[i].same_bits(row_of(dall[i], f.B, b))) << where << ", gradient " << i;
        }
      }
    }
  }
}

}  // namespace
}  // namespace weft
