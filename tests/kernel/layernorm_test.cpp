// tests/kernel/layernorm_test.cpp: layer norm and its gradient against ref, differences, PyTorch.
#include <fmt/core.h>

#include "tests/kernel/common.h"

namespace weft {
namespace {

struct LayerNormCase {
  int64_t R, C;
  Dtype dtype, grad_dtype;
  bool bias, residual, dweight, dbias, accumulate;
  std::string text() const {
    return fmt::format("R {} C {} {} grad {} bias {} residual {} dweight {} dbias {} accumulate {}",
                       R, C, dtype_name(dtype), dtype_name(grad_dtype), bias, residual, dweight,
                       dbias, accumulate);
  }
};

std::vector<LayerNormCase> layernorm_cases() {
  std::vector<LayerNormCase> list;
  for (const Dtype dtype : kAllTypes) {
    const Dtype f = Dtype::kF32, grad = gradient_types(dtype).back();
    list.push_back({1, 1, dtype, f, true, false, true, true, false});
    list.push_back({3, 7, dtype, grad, true, true, true, true, true});
    list.push_back({65, 50, dtype, f, false, true, true, false, false});
    list.push_back({130, 96, dtype, grad, true, false, true, true, true});
    list.push_back({9, 1031, dtype, f, true, true, false, false, false});
    list.push_back({700, 18, dtype, grad, true, true, true, true, false});
    list.push_back({5, 896, dtype, grad, true, true, false, true, true});
    list.push_back({7, 2056, dtype, f, true, true, true, false, false});
    list.push_back({3, 8192, dtype, grad, false, true, true, false, true});
    list.push_back({2, 9001, dtype, f, true, true, true, true, false});
  }
  return list;
}

struct Operands {
  Buffer x, residual, weight, bias;
  explicit Operands(const LayerNormCase& c)
      : x(Buffer::random(c.dtype, c.R * c.C, 1)),
        residual(Buffer::random(c.dtype, c.R * c.C, 2)),
        weight(Buffer::random(c.dtype, c.C, 3)),
        bias(Buffer::random(c.dtype, c.C, 4)) {}
};

// sum, y, mean, rstd.
Outputs norm(const LayerNormCase& c, const Operands& in, const Kernels& kernels, Bench& bench) {
  Buffer sum(c.dtype, c.R * c.C), y(c.dtype, c.R * c.C);
  Buffer mean(Dtype::kF32, c.R), rstd(Dtype::kF32, c.R);
  LayerNormArgs args = {.R = c.R,
                        .C = c.C,
                        .dtype = c.dtype,
                        .eps = 1e-5f,
                        .x = in.x.data(),
                        .residual = c.residual ? in.residual.data() : nullptr,
                        .weight = in.weight.data(),
                        .bias = c.bias ? in.bias.data() : nullptr,
                        .sum = sum.data(),
                        .y = y.data(),
                        .mean = mean.floats(),
                        .rstd = rstd.floats(),
                        .reuse_statistics = false};
  kernels.layernorm(bench.context(0), args);
  Buffer again(c.dtype, c.R * c.C);
  args.x = sum.data();
  args.residual = nullptr;
  args.sum = nullptr;
  args.y = again.data();
  args.reuse_statistics = true;
  kernels.layernorm(bench.context(0), args);
  EXPECT_TRUE(again.same_bits(y)) << c.text() << " " << kernels.name;
  return {sum, y, mean, rstd};
}

// dx, dweight, dbias. Outputs that are not requested stay unchanged.
Outputs norm_backward(const LayerNormCase& c, const Buffer& dy, const Buffer& s,
                      const Buffer& weight, const Buffer& mean, const Buffer& rstd,
                      const Kernels& kernels, Bench& bench) {
  Buffer dx = Buffer::random(c.dtype, c.R * c.C, 9);  // dsum, overwritten in place
  Buffer dweight = Buffer::random(c.grad_dtype, c.C, 10);
  Buffer dbias = Buffer::random(c.grad_dtype, c.C, 11);
  if (!c.residual) dx = dy;  // dy, overwritten in place
  const LayerNormBackwardArgs args = {.R = c.R,
                                      .C = c.C,
                                      .dtype = c.dtype,
                                      .grad_dtype = c.grad_dtype,
                                      .dy = c.residual ? dy.data() : dx.data(),
                                      .dsum = c.residual ? dx.data() : nullptr,
                                      .s = s.data(),
                                      .weight = weight.data(),
                                      .mean = mean.floats(),
                                      .rstd = rstd.floats(),
                                      .dx = dx.data(),
                                      .dweight = c.dweight ? dweight.data() : nullptr,
                                      .dbias = c.dbias ? dbias.data() : nullptr,
                                      .accumulate = c.accumulate};
  const size_t bytes = kernels.layernorm_backward_workspace(args, bench.num_threads());
  kernels.layernorm_backward(bench.context(bytes), args);
  return {dx, dweight, dbias};
}

TEST(LayerNorm, EveryLevelAgreesWithRef) {
  for (const LayerNormCase& c : layernorm_cases()) {
    const Operands in(c);
    compare_levels(
        "layernorm " + c.text(), c.dtype,
        [&](const Kernels& k, Bench& b) { return norm(c, in, k, b); },
        [&](size_t output) { return tolerance_of(output >= 2 ? Dtype::kF32 : c.dtype); });
  }
}

TEST(LayerNorm, EveryLevelsGradientAgreesWithRef) {
  for (const LayerNormCase& c : layernorm_cases()) {
    const Operands in(c);
    const Buffer dy = Buffer::random(c.dtype, c.R * c.C, 5);
    Buffer mean(Dtype::kF32, c.R), rstd(Dtype::kF32, c.R);
    for (int64_t r = 0; r < c.R; ++r) {
      mean.set(r, 0.3 - 0.002 * static_cast<double>(r));
      rstd.set(r, 0.5 + 0.01 * static_cast<double>(r));
    }
    compare_levels(
        "layernorm gradient " + c.text(), c.dtype,
        [&](const Kernels& k, Bench& b) {
          return norm_backward(c, dy, in.x, in.weight, mean, rstd, k, b);
        },
        [&](size_t output) { return tolerance_of(output == 0 ? c.dtype : c.grad_dtype); });
  }
}

// A large mean cancels in E[s^2] - E[s]^2; two passes over the row keep the variance accurate.
TEST(LayerNorm, ALargeMeanKeepsTheVariance) {
  const LayerNormCase c = {3, 333, Dtype::kF32, Dtype::kF32, true, false, true, true, false};
  Operands in(c);
  for (int64_t i = 0; i < c.R * c.C; ++i) in.x.set(i, 4096.0 + static_cast<double>(i % 3 - 1));
  compare_levels(
      "layernorm around 4096", c.dtype,
      [&](const Kernels& k, Bench& b) { return norm(c, in, k, b); },
      Tolerance{2e-6, 5e-4});  // mean is good to 2^-12 of 4096: 2.4e-4 of a deviation of 0.8
}

TEST(LayerNorm, GradientOfRefIsTheDifference) {
  const LayerNormCase c = {2, 6, Dtype::kF32, Dtype::kF32, true, true, true, true, false};
  Operands in(c);
  const Buffer dy = Buffer::random(c.dtype, c.R * c.C, 5);
  const Buffer dsum = Buffer::random(c.dtype, c.R * c.C, 9);  // as norm_backward has it
  Bench bench(1);
  const auto loss = [&] {
    const Outputs result = norm(c, in, ref_kernels(), bench);
    double sum = 0.0;
    for (int64_t i = 0; i < dy.size(); ++i) sum += dy[i] * result[1][i] + dsum[i] * result[0][i];
    return sum;
  };
  const Outputs of = norm(c, in, ref_kernels(), bench);
  const Outputs gradient =
      norm_backward(c, dy, of[0], in.weight, of[2], of[3], ref_kernels(), bench);
  expect_differences(in.x, loss, gradient[0], "dx");
  expect_differences(in.residual, loss, gradient[0], "dresidual");
  expect_differences(in.weight, loss, gradient[1], "dweight");
  expect_differences(in.bias, loss, gradient[2], "dbias");
}

// torch 2.15 on a CPU: F.layer_norm(x, (7,), weight, bias, 1e-5) and its gradients.
constexpr double kTorchY[] = {-1.41136312, -0.539511621,  0.647216916,  -0.859528899, 0.527188897,
                              2.22878385,  -0.0523890853, -0.672168612, 0.410124779,  -0.845033288,
                              0.443764329, -1.49241841,   0.0028835386, 1.82331967};
constexpr double kTorchDx[] = {-0.240625903, -0.0636801571, 0.236663312,   -0.119488612,
                               0.291487277,  -0.399606049,  0.295250148,   -0.268257797,
                               0.0126205087, -0.445792109,  -0.0506774187, 0.44873789,
                               -0.166699827, 0.470068663};
constexpr double kTorchDweight[] = {1.22057259,  0.36997667,   1.64139748, 0.307974607,
                                    -1.51472473, -0.665091395, 0.389988601};
constexpr double kTorchDbias[] = {-1.65625, 0.15625,  -0.03125, -0.21875,
                                  1.59375,  -0.59375, 1.21875};
// The same in bf16: y rounded once.
constexpr double kTorchBf16Y[] = {-1.4140625,  -0.5390625,    0.6484375,     -0.859375,  0.52734375,
                                  2.234375,    -0.0524902344, -0.671875,     0.41015625, -0.84375,
                                  0.443359375, -1.4921875,    0.00288391113, 1.8203125};

struct TorchCase {
  LayerNormCase c;
  Operands in;
  Buffer dy;
  explicit TorchCase(Dtype dtype)
      : c{2, 7, dtype, Dtype::kF32, true, false, true, true, false},
        in(c),
        dy(Buffer::filled(dtype, 14, 0)) {
    for (int64_t i = 0; i < 14; ++i) {
      in.x.set(i, static_cast<double>(37 * i % 101 - 50) / 16);
      dy.set(i, static_cast<double>(29 * i % 64 - 32) / 32);
    }
    for (int64_t i = 0; i < 7; ++i) {
      in.weight.set(i, 0.5 + static_cast<double>(i) / 8);
      in.bias.set(i, static_cast<double>(i - 3) / 4);
    }
  }
};

void expect_values(const Buffer& got, const double* want, double tolerance, const char* what) {
  for (int64_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], want[i], tolerance) << what << i;
}

TEST(LayerNorm, HasTheValuesOfTorch) {
  Bench bench(1);
  std::vector<const Kernels*> all = tested_kernels();
  all.push_back(&ref_kernels());
  for (const Kernels* k : all) {
    SCOPED_TRACE(k->name);
    const TorchCase t(Dtype::kF32);
    const Outputs got = norm(t.c, t.in, *k, bench);
    const Outputs gradient =
        norm_backward(t.c, t.dy, t.in.x, t.in.weight, got[2], got[3], *k, bench);
    expect_values(got[1], kTorchY, 1e-6, "y ");
    expect_values(gradient[0], kTorchDx, 1e-6, "dx ");
    expect_values(gradient[1], kTorchDweight, 1e-6, "dweight ");
    expect_values(gradient[2], kTorchDbias, 1e-6, "dbias ");
    const TorchCase narrow(Dtype::kBf16);
    expect_values(norm(narrow.c, narrow.in, *k, bench)[1], kTorchBf16Y, 1e-9, "bf16 y ");
  }
}

}  // namespace
}  // namespace weft
