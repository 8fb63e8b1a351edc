// tests/kernel/elementwise_test.cpp: swiglu, add and squares.
#include <fmt/core.h>

#include "tests/kernel/common.h"

namespace weft {
namespace {

Outputs swiglu_both(int64_t R, int64_t F, Dtype dtype, const Buffer& gate_up, const Buffer& dh,
                    const Kernels& kernels, Bench& bench) {
  Buffer h(dtype, R * F), gradient = gate_up, again = dh;  // in place
  kernels.swiglu(bench.context(0),
                 {.R = R, .F = F, .dtype = dtype, .gate_up = gate_up.data(), .h = h.data()});
  kernels.swiglu_backward(bench.context(0), {.R = R,
                                             .F = F,
                                             .dtype = dtype,
                                             .dh = again.data(),
                                             .gate_up = gradient.data(),
                                             .dgate_up = gradient.data(),
                                             .h = again.data()});
  EXPECT_TRUE(again.same_bits(h)) << kernels.name;
  return {h, gradient};
}

TEST(Swiglu, EveryLevelAgreesWithRef) {
  for (const Dtype dtype : kAllTypes) {
    for (const int64_t F : {1, 5, 64, 333, 2056}) {
      const int64_t R = 17;
      const Buffer gate_up = Buffer::random(dtype, R * 2 * F, 1, 4.0);
      const Buffer dh = Buffer::random(dtype, R * F, 2);
      compare_levels(
          fmt::format("swiglu F {} {}", F, dtype_name(dtype)), dtype,
          [&](const Kernels& k, Bench& b) { return swiglu_both(R, F, dtype, gate_up, dh, k, b); },
          tolerance_of(dtype));
    }
  }
}

TEST(Swiglu, HugeGatesStayFinite) {
  const int64_t F = 77;  // vectors by four, single ones and a tail at every level
  Bench bench(1);
  for (const Dtype dtype : kAllTypes) {
    for (const double huge : {200.0, dtype == Dtype::kF16 ? 0x1p15 : 0x1p100}) {
      Buffer gate_up = Buffer::filled(dtype, 2 * F, 1.0);
      for (int64_t i = 0; i < F; ++i) gate_up.set(i, i % 2 == 0 ? -huge : huge);
      const Buffer dh = Buffer::filled(dtype, F, 1.0);
      for (const Kernels* k : tested_kernels(dtype)) {
        const Outputs got = swiglu_both(1, F, dtype, gate_up, dh, *k, bench);
        for (int64_t i = 0; i < F; ++i) EXPECT_EQ(got[0][i], i % 2 == 0 ? 0.0 : huge) << k->name;
        for (int64_t i = 0; i < F; ++i) EXPECT_EQ(got[1][i], i % 2 == 0 ? 0.0 : 1.0) << k->name;
      }
    }
  }
}

TEST(Swiglu, GradientOfRefIsTheDifference) {
  const int64_t R = 2, F = 3;
  Buffer gate_up = Buffer::random(Dtype::kF32, R * 2 * F, 1);
  const Buffer dh = Buffer::random(Dtype::kF32, R * F, 2);
  Bench bench(1);
  const auto loss = [&] {
    const Outputs result = swiglu_both(R, F, Dtype::kF32, gate_up, dh, ref_kernels(), bench);
    double sum = 0.0;
    for (int64_t i = 0; i < dh.size(); ++i) sum += dh[i] * result[0][i];
    return sum;
  };
  const Buffer gradient = swiglu_both(R, F, Dtype::kF32, gate_up, dh, ref_kernels(), bench)[1];
  expect_differences(gate_up, loss, gradient, "dgate_up");
}

TEST(Add, EveryLevelAgreesWithRef) {
  for (const Dtype dtype : kAllTypes) {
    for (const int64_t n : {1, 255, 40000}) {
      const Buffer a = Buffer::random(dtype, n, 1), b = Buffer::random(dtype, n, 2);
      compare_levels(
          fmt::format("add n {} {}", n, dtype_name(dtype)), dtype,
          [&](const Kernels& kernels, Bench& bench) {
            Buffer out = a;
            kernels.add(
                bench.context(0),
                {.n = n, .dtype = dtype, .a = out.data(), .b = b.data(), .out = out.data()});
            return Outputs{out};
          },
          Tolerance{0.0, 0.0});  // one addition, one rounding: the same bits
    }
  }
}

// The order of the sixteen sums is the same at every width: levels of the CPU agree to the bit. A
// GPU has its own order.
TEST(Squares, EveryLevelHasTheSameBits) {
  Bench bench(2);
  for (const Dtype dtype : {Dtype::kF32, Dtype::kBf16}) {
    for (const int64_t n : {1, 15, 256, 300, 70001}) {
      const Buffer x = Buffer::random(dtype, n, 1);
      const size_t cells = static_cast<size_t>((n + 255) / 256);
      TestVector<double> want(cells), first;
      ref_kernels().squares(bench.context(0), {n, dtype, x.data(), want.data()});
      for (const Kernels* k : tested_kernels(dtype)) {
        TestVector<double> got(cells);
        k->squares(bench.context(0), {n, dtype, x.data(), got.data()});
        for (size_t i = 0; i < cells; ++i) EXPECT_NEAR(got[i], want[i], 1e-13 * want[i]) << k->name;
        if (!find_kernels(k->name)) continue;
        if (first.empty()) first = got;
        EXPECT_EQ(got, first) << k->name;
      }
    }
  }
}

}  // namespace
}  // namespace weft
