// tests/kernel/gelu_test.cpp: both forms of GELU against ref, differences and PyTorch.
#include <fmt/core.h>

#include "tests/kernel/common.h"

namespace weft {
namespace {

// y, dx; the gradient overwrites x, and y again overwrites dy.
Outputs gelu_both(bool approximate_tanh, const Buffer& x, const Buffer& dy, const Kernels& kernels,
                  Bench& bench) {
  const int64_t n = x.size();
  const Dtype dtype = x.dtype();
  Buffer y(dtype, n), dx = x, again = dy;
  kernels.gelu(
      bench.context(0),
      {.n = n, .dtype = dtype, .approximate_tanh = approximate_tanh, .x = x.data(), .y = y.data()});
  GeluBackwardArgs args = {.n = n,
                           .dtype = dtype,
                           .approximate_tanh = approximate_tanh,
                           .dy = again.data(),
                           .x = dx.data(),
                           .dx = dx.data(),
                           .y = again.data()};
  kernels.gelu_backward(bench.context(0), args);
  EXPECT_TRUE(again.same_bits(y)) << kernels.name << ": y again has other bits";
  Buffer in_dy = dy;  // the other in-place variant, without y
  args.dy = args.dx = in_dy.data();
  args.x = x.data();
  args.y = nullptr;
  kernels.gelu_backward(bench.context(0), args);
  EXPECT_TRUE(in_dy.same_bits(dx)) << kernels.name;
  return {y, dx};
}

TEST(Gelu, EveryLevelAgreesWithRef) {
  for (const Dtype dtype : kAllTypes) {
    for (const int64_t n : {1, 5, 64, 333, 70001}) {
      for (const bool approximate_tanh : {false, true}) {
        const Buffer x = Buffer::random(dtype, n, 1, 3.0), dy = Buffer::random(dtype, n, 2);
        compare_levels(
            fmt::format("gelu n {} {} tanh {}", n, dtype_name(dtype), approximate_tanh), dtype,
            [&](const Kernels& k, Bench& b) { return gelu_both(approximate_tanh, x, dy, k, b); },
            tolerance_of(dtype));
      }
    }
  }
}

TEST(Gelu, HugeValuesAreZeroOrThemselves) {
  const int64_t n = 77;  // vectors by four, single ones and a tail at every level
  Bench bench(1);
  for (const Dtype dtype : kAllTypes) {
    for (const double huge : {200.0, dtype == Dtype::kF16 ? 0x1p15 : 0x1p100}) {
      Buffer x(dtype, n);
      for (int64_t i = 0; i < n; ++i) x.set(i, i % 2 == 0 ? -huge : huge);
      const Buffer dy = Buffer::filled(dtype, n, 1.0);
      for (const Kernels* k : tested_kernels(dtype)) {
        for (const bool approximate_tanh : {false, true}) {
          const Outputs got = gelu_both(approximate_tanh, x, dy, *k, bench);
          for (int64_t i = 0; i < n; ++i) {
            EXPECT_EQ(got[0][i], i % 2 == 0 ? 0.0 : huge) << k->name;
            EXPECT_EQ(got[1][i], i % 2 == 0 ? 0.0 : 1.0) << k->name;
          }
        }
      }
    }
  }
}

// What each form costs in accuracy: the largest error over [-8, 8], in units of 2^-24.
TEST(Gelu, ErrorsOfFp32AreSmall) {
  Bench bench(1);
  const int64_t n = 32001;
  Buffer x(Dtype::kF32, n);
  for (int64_t i = 0; i < n; ++i) x.set(i, static_cast<double>(i - 16000) / 2000);
  const Buffer dy = Buffer::filled(Dtype::kF32, n, 1.0);
  for (const bool approximate_tanh : {false, true}) {
    const Outputs want = gelu_both(approximate_tanh, x, dy, ref_kernels(), bench);
    for (const Kernels* k : tested_kernels()) {
      const Outputs got = gelu_both(approximate_tanh, x, dy, *k, bench);
      double worst[2] = {};
      for (int64_t i = 0; i < n; ++i) {
        const double scale = std::max(1.0, std::abs(x[i]));  // of y; of dx it is 1
        worst[0] = std::max(worst[0], std::abs(got[0][i] - want[0][i]) / scale);
        worst[1] = std::max(worst[1], std::abs(got[1][i] - want[1][i]));
      }
      std::printf("  gelu %s of %s: y %.2f, dx %.2f of 2^-24\n", approximate_tanh ? "tanh" : "erf",
                  k->name, worst[0] * 0x1p24, worst[1] * 0x1p24);
      EXPECT_LT(worst[0], kGeluError) << k->name;
      EXPECT_LT(worst[1], kGeluError) << k->name;
    }
  }
}

TEST(Gelu, GradientOfRefIsTheDifference) {
  Bench bench(1);
  for (const bool approximate_tanh : {false, true}) {
    Buffer x = Buffer::random(Dtype::kF32, 12, 1, 2.0);
    const Buffer dy = Buffer::random(Dtype::kF32, 12, 2);
    const auto loss = [&] {
      const Outputs result = gelu_both(approximate_tanh, x, dy, ref_kernels(), bench);
      double sum = 0.0;
      for (int64_t i = 0; i < dy.size(); ++i) sum += dy[i] * result[0][i];
      return sum;
    };
    const Buffer gradient = gelu_both(approximate_tanh, x, dy, ref_kernels(), bench)[1];
    expect_differences(x, loss, gradient, "dx");
  }
}

// torch 2.15 on a CPU: F.gelu(x, approximate="none" | "tanh"), and dx for dy = 1.5.
constexpr double kX[] = {-6, -3, -1.5, -0.75, -0.125, 0, 0.0625, 0.5, 1, 2.25, 4, 9};
constexpr int64_t kGeluCount = std::size(kX);
constexpr double kErfY[kGeluCount] = {0,
                                      -0.00404968858,
                                      -0.100210816,
                                      -0.169970512,
                                      -0.0562827215,
                                      0,
                                      0.0328073539,
                                      0.345731229,
                                      0.841344714,
                                      2.22249484,
                                      3.99987316,
                                      9};
constexpr double kErfDx[kGeluCount] = {-5.46830528e-08, -0.0179184824, -0.191203803, 0.00116142211,
                                       0.601173043,     0.75,          0.824704349,  1.30124271,
                                       1.6249733,       1.58878469,    1.50075555,   1.5};
constexpr double kTanhY[kGeluCount] = {0,
                                       -0.00363725424,
                                       -0.100428343,
                                       -0.1700394,
                                       -0.056282796,
                                       0,
                                       0.0328073464,
                                       0.345714003,
                                       0.841192007,
                                       2.22279882,
                                       3.9999299,
                                       9};
constexpr double kTanhDx[kGeluCount] = {0,           -0.0173764452, -0.191566229, 0.00159265101,
                                        0.601176858, 0.75,          0.824703932,  1.30105484,
                                        1.62444615,  1.58987188,    1.50050247,   1.5};

TEST(Gelu, HasTheValuesOfTorch) {
  Bench bench(1);
  std::vector<const Kernels*> all = tested_kernels();
  all.push_back(&ref_kernels());
  Buffer x(Dtype::kF32, kGeluCount);
  for (int64_t i = 0; i < kGeluCount; ++i) x.set(i, kX[i]);
  const Buffer dy = Buffer::filled(Dtype::kF32, kGeluCount, 1.5);
  for (const Kernels* k : all) {
    for (const bool approximate_tanh : {false, true}) {
      const Outputs got = gelu_both(approximate_tanh, x, dy, *k, bench);
      for (int64_t i = 0; i < kGeluCount; ++i) {
        EXPECT_NEAR(got[0][i], (approximate_tanh ? kTanhY : kErfY)[i], 1e-6) << k->name << kX[i];
        EXPECT_NEAR(got[1][i], (approximate_tanh ? kTanhDx : kErfDx)[i], 1e-6) << k->name << kX[i];
      }
    }
  }
}

}  // namespace
}  // namespace weft
