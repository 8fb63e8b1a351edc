// kernel/ref/rmsnorm.cpp: root-mean-square norm with residual add, and its gradient.
#include <cmath>

#include "kernel/ref/ref.h"

namespace weft::ref {
namespace {

// What the weight multiplies: rounded, unless the weight has an offset.
double normed_of(Dtype dtype, int weight_offset, double normed) {
  return weight_offset == 0 ? rounded(dtype, normed) : normed;
}

double weight_of(const void* weight, Dtype dtype, int weight_offset, int64_t c) {
  const double w = get(weight, dtype, c);
  return weight_offset == 0 ? w : 1.0 + w;
}

void norm_row(const RmsNormArgs& args, int64_t r) {
  const Dtype dtype = args.dtype;
  const int64_t base = r * args.C;
  const auto s = [&](int64_t c) {
    const double x = get(args.x, dtype, base + c);
    return args.residual ? rounded(dtype, x + get(args.residual, dtype, base + c)) : x;
  };
  if (!args.reuse_rstd) {
    double squares = 0.0;
    for (int64_t c = 0; c < args.C; ++c) squares += s(c) * s(c);
    const double mean = squares / static_cast<double>(args.C);
    args.rstd[r] = static_cast<float>(1.0 / std::sqrt(mean + args.eps));
  }
  for (int64_t c = 0; c < args.C; ++c) {
    const double value = s(c);  // read before sum is written: it may be x or residual
    const double normed = normed_of(dtype, args.weight_offset, value * args.rstd[r]);
    const double weight = weight_of(args.weight, dtype, args.weight_offset, c);
    if (args.sum) put(args.sum, dtype, base + c, value);
    if (args.y) put(args.y, dtype, base + c, normed * weight);
  }
}

// With n = s * rstd and g = dy * weight: ds = rstd * (g - n * mean(g * n)).
void norm_row_backward(const RmsNormBackwardArgs& args, int64_t r) {
  const Dtype dtype = args.dtype;
  const int64_t base = r * args.C;
  const double rstd = args.rstd[r];
  const auto g = [&](int64_t c) {
    return get(args.dy, dtype, base + c) * weight_of(args.weight, dtype, args.weight_offset, c);
  };
  double mean = 0.0;
  for (int64_t c = 0; c < args.C; ++c) {
    mean += g(c) * get(args.s, dtype, base + c) * rstd / static_cast<double>(args.C);
  }
  for (int64_t c = 0; c < args.C; ++c) {
    double dx = rstd * (g(c) - get(args.s, dtype, base + c) * rstd * mean);
    if (args.dsum) dx += get(args.dsum, dtype, base + c);
    put(args.dx, dtype, base + c, dx);
  }
}

}  // namespace

void rmsnorm(const Context&, const RmsNormArgs& args) {
  for (int64_t r = 0; r < args.R; ++r) norm_row(args, r);
}

// dweight first: dx may overwrite dy.
void rmsnorm_backward(const Context&, const RmsNormBackwardArgs& args) {
  for (int64_t c = 0; args.dweight && c < args.C; ++c) {
    double sum = 0.0;
    for (int64_t r = 0; r < args.R; ++r) {
      const int64_t index = r * args.C + c;
      const double normed =
          normed_of(args.dtype, args.weight_offset, get(args.s, args.dtype, index) * args.rstd[r]);
      sum += get(args.dy, args.dtype, index) * normed;
    }
    if (args.accumulate) sum = plus_fp32(sum, get(args.dweight, args.grad_dtype, c));
    put(args.dweight, args.grad_dtype, c, sum);
  }
  for (int64_t r = 0; r < args.R; ++r) norm_row_backward(args, r);
}

}  // namespace weft::ref
