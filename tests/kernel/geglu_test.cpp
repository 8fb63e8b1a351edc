// tests/kernel/geglu_test.cpp: gelu(gate) * up against ref, differences, gelu itself and PyTorch.
#include <fmt/core.h>

#include "tests/kernel/common.h"

namespace weft {
namespace {

// h, dgate_up; the gradient overwrites gate_up, and h again overwrites dh.
Outputs geglu_both(int64_t R, int64_t F, Dtype dtype, const Buffer& gate_up, const Buffer& dh,
                   const Kernels& kernels, Bench& bench) {
  Buffer h(dtype, R * F), gradient = gate_up, again = dh, apart(dtype, R * 2 * F);
  kernels.geglu(bench.context(0),
                {.R = R, .F = F, .dtype = dtype, .gate_up = gate_up.data(), .h = h.data()});
  GegluBackwardArgs args = {.R = R,
                            .F = F,
                            .dtype = dtype,
                            .dh = again.data(),
                            .gate_up = gradient.data(),
                            .dgate_up = gradient.data(),
                            .h = again.data()};
  kernels.geglu_backward(bench.context(0), args);
  EXPECT_TRUE(again.same_bits(h)) << kernels.name << ": h again has other bits";
  args.dh = dh.data();
  args.gate_up = gate_up.data();
  args.dgate_up = apart.data();
  args.h = nullptr;
  kernels.geglu_backward(bench.context(0), args);
  EXPECT_TRUE(apart.same_bits(gradient)) << kernels.name;
  return {h, gradient};
}

TEST(Geglu, EveryLevelAgreesWithRef) {
  for (const Dtype dtype : kAllTypes) {
    for (const int64_t F : {1, 5, 64, 333, 2056}) {
      const int64_t R = 17;
      const Buffer gate_up = Buffer::random(dtype, R * 2 * F, 1, 3.0);
      const Buffer dh = Buffer::random(dtype, R * F, 2);
      compare_levels(
          fmt::format("geglu F {} {}", F, dtype_name(dtype)), dtype,
          [&](const Kernels& k, Bench& b) { return geglu_both(R, F, dtype, gate_up, dh, k, b); },
          tolerance_of(dtype));
    }
  }
}

// With up = 1 it is GELU's tanh form: the same bits on every backend.
TEST(Geglu, WithoutUpItIsGelu) {
  const int64_t F = 300;
  Bench bench(1);
  for (const Dtype dtype : kAllTypes) {
    const Buffer x = Buffer::random(dtype, F, 3, 3.0);
    Buffer gate_up = Buffer::filled(dtype, 2 * F, 1.0);
    for (int64_t i = 0; i < F; ++i) gate_up.set(i, x[i]);
    for (const Kernels* k : tested_kernels(dtype)) {
      Buffer y(dtype, F), h(dtype, F);
      k->gelu(bench.context(0),
              {.n = F, .dtype = dtype, .approximate_tanh = true, .x = x.data(), .y = y.data()});
      k->geglu(bench.context(0),
               {.R = 1, .F = F, .dtype = dtype, .gate_up = gate_up.data(), .h = h.data()});
      EXPECT_TRUE(h.same_bits(y)) << k->name << " " << dtype_name(dtype);
    }
  }
}

TEST(Geglu, HugeGatesStayFinite) {
  const int64_t F = 77;  // vectors by four, single ones and a tail at every level
  Bench bench(1);
  for (const Dtype dtype : kAllTypes) {
    for (const double huge : {200.0, dtype == Dtype::kF16 ? 0x1p15 : 0x1p100}) {
      Buffer gate_up = Buffer::filled(dtype, 2 * F, 1.0);
      for (int64_t i = 0; i < F; ++i) gate_up.set(i, i % 2 == 0 ? -huge : huge);
      const Buffer dh = Buffer::filled(dtype, F, 1.0);
      for (const Kernels* k : tested_kernels(dtype)) {
        const Outputs got = geglu_both(1, F, dtype, gate_up, dh, *k, bench);
        for (int64_t i = 0; i < F; ++i) EXPECT_EQ(got[0][i], i % 2 == 0 ? 0.0 : huge) << k->name;
        for (int64_t i = 0; i < F; ++i) EXPECT_EQ(got[1][i], i % 2 == 0 ? 0.0 : 1.0) << k->name;
        for (int64_t i = 0; i < F; ++i) {
          EXPECT_EQ(got[1][F + i], i % 2 == 0 ? 0.0 : huge) << k->name;
        }
      }
    }
  }
}

TEST(Geglu, GradientOfRefIsTheDifference) {
  const int64_t R = 2, F = 3;
  Buffer gate_up = Buffer::random(Dtype::kF32, R * 2 * F, 1);
  const Buffer dh = Buffer::random(Dtype::kF32, R * F, 2);
  Bench bench(1);
  const auto loss = [&] {
    const Outputs result = geglu_both(R, F, Dtype::kF32, gate_up, dh, ref_kernels(), bench);
    double sum = 0.0;
    for (int64_t i = 0; i < dh.size(); ++i) sum += dh[i] * result[0][i];
    return sum;
  };
  const Buffer gradient = geglu_both(R, F, Dtype::kF32, gate_up, dh, ref_kernels(), bench)[1];
  expect_differences(gate_up, loss, gradient, "dgate_up");
}

// torch 2.15 on a CPU: F.gelu(gate, approximate="tanh") * up, and its gradients for dh = 1.5.
constexpr double kGate[] = {-6, -3, -1.5, -0.75, -0.125, 0, 0.0625, 0.5, 1, 2.25, 4, 9};
constexpr double kUp[] = {2, -1, 0.5, 1.5, -3, 4, 1, -0.25, 2.5, -2, 0.75, 1};
constexpr int64_t kGegluCount = std::size(kGate);
constexpr double kH[kGegluCount] = {0,
                                    0.00363725424,
                                    -0.0502141714,
                                    -0.255059093,
                                    0.168848395,
                                    0,
                                    0.0328073464,
                                    -0.0864285007,
                                    2.10298014,
                                    -4.44559765,
                                    2.99994755,
                                    9};
constexpr double kDgate[kGegluCount] = {
    0,           0.0173764452, -0.0957831144, 0.00238897651, -1.80353057, 3,
    0.824703932, -0.325263709, 4.06111526,    -3.17974377,   1.12537682,  1.5};
constexpr double kDup[kGegluCount] = {
    0,           -0.00545588136, -0.150642514, -0.255059093, -0.0844241977, 0, 0.0492110178,
    0.518571019, 1.26178801,     3.33419824,   5.9998951,    13.5};

TEST(Geglu, HasTheValuesOfTorch) {
  Bench bench(1);
  std::vector<const Kernels*> all = tested_kernels();
  all.push_back(&ref_kernels());
  Buffer gate_up(Dtype::kF32, 2 * kGegluCount);
  for (int64_t i = 0; i < kGegluCount; ++i) gate_up.set(i, kGate[i]);
  for (int64_t i = 0; i < kGegluCount; ++i) gate_up.set(kGegluCount + i, kUp[i]);
  const Buffer dh = Buffer::filled(Dtype::kF32, kGegluCount, 1.5);
  for (const Kernels* k : all) {
    const Outputs got = geglu_both(1, kGegluCount, Dtype::kF32, gate_up, dh, *k, bench);
    for (int64_t i = 0; i < kGegluCount; ++i) {
      EXPECT_NEAR(got[0][i], kH[i], 2e-6) << k->name << kGate[i];
      EXPECT_NEAR(got[1][i], kDgate[i], 2e-6) << k->name << kGate[i];
      EXPECT_NEAR(got[1][kGegluCount + i], kDup[i], 2e-6) << k->name << kGate[i];
    }
  }
}

}  // namespace
}  // namespace weft
