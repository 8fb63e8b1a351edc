// tests/kernel/relu_test.cpp: relu and its gradient, in place.
#include <fmt/core.h>

#include <limits>

#include "tests/kernel/common.h"

namespace weft {
namespace {

// y, dx.
Outputs relu_both(const Buffer& x, const Buffer& dy, const Kernels& kernels, Bench& bench) {
  const int64_t n = x.size();
  const Dtype dtype = x.dtype();
  Buffer y = x, dx = dy, in_y;
  kernels.relu(bench.context(0), {.n = n, .dtype = dtype, .x = y.data(), .y = y.data()});
  ReluBackwardArgs args = {.n = n, .dtype = dtype, .dy = dx.data(), .y = y.data(), .dx = dx.data()};
  kernels.relu_backward(bench.context(0), args);
  in_y = y;  // the other in-place variant
  args.dy = dy.data();
  args.y = args.dx = in_y.data();
  kernels.relu_backward(bench.context(0), args);
  EXPECT_TRUE(in_y.same_bits(dx)) << kernels.name;
  return {y, dx};
}

TEST(Relu, EveryLevelHasTheBitsOfRef) {
  for (const Dtype dtype : kAllTypes) {
    for (const int64_t n : {1, 5, 64, 333, 70001}) {
      Buffer x = Buffer::random(dtype, n, 1);
      for (int64_t i = 0; i < n; i += 7) x.set(i, i % 2 == 0 ? 0.0 : -0.0);
      const Buffer dy = Buffer::random(dtype, n, 2);
      compare_levels(
          fmt::format("relu n {} {}", n, dtype_name(dtype)), dtype,
          [&](const Kernels& k, Bench& b) { return relu_both(x, dy, k, b); }, Tolerance{0.0, 0.0});
    }
  }
}

// As PyTorch: at 0 the gradient is 0, and a NaN is not hidden.
TEST(Relu, OfZeroInfinityAndNan) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  const double of[] = {-2, -0.0, 0, 3, kInfinity, -kInfinity, std::nan("")};
  const double want[] = {0, 0, 0, 3, kInfinity, 0, std::nan("")}, slope[] = {0, 0, 0, 1, 1, 0};
  Bench bench(1);
  for (const Dtype dtype : kAllTypes) {
    Buffer x(dtype, 7);
    for (int64_t i = 0; i < 7; ++i) x.set(i, of[i]);
    for (const Kernels* k : tested_kernels(dtype)) {
      const Outputs got = relu_both(x, Buffer::filled(dtype, 7, 1.0), *k, bench);
      for (int64_t i = 0; i < 6; ++i) EXPECT_EQ(got[0][i], want[i]) << k->name << " " << of[i];
      for (int64_t i = 0; i < 6; ++i) EXPECT_EQ(got[1][i], slope[i]) << k->name << " " << of[i];
      EXPECT_TRUE(std::isnan(got[0][6])) << k->name;
    }
  }
}

TEST(Relu, GradientOfRefIsTheDifference) {
  Bench bench(1);
  Buffer x = Buffer::random(Dtype::kF32, 12, 1);
  for (int64_t i = 0; i < 12; ++i) x.set(i, x[i] + (x[i] < 0 ? -0.1 : 0.1));  // not at the corner
  const Buffer dy = Buffer::random(Dtype::kF32, 12, 2);
  const auto loss = [&] {
    const Outputs result = relu_both(x, dy, ref_kernels(), bench);
    double sum = 0.0;
    for (int64_t i = 0; i < dy.size(); ++i) sum += dy[i] * result[0][i];
    return sum;
  };
  expect_differences(x, loss, relu_both(x, dy, ref_kernels(), bench)[1], "dx");
}

}  // namespace
}  // namespace weft
