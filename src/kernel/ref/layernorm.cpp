// kernel/ref/layernorm.cpp: layer norm with residual add, and its gradient.
#include <cmath>

#include "kernel/ref/ref.h"

namespace weft::ref {
namespace {

void norm_row(const LayerNormArgs& args, int64_t r) {
  const Dtype dtype = args.dtype;
  const int64_t base = r * args.C;
  const auto s = [&](int64_t c) {
    const double x = get(args.x, dtype, base + c);
    return args.residual ? rounded(dtype, x + get(args.residual, dtype, base + c)) : x;
  };
  if (!args.reuse_statistics) {
    double mean = 0.0, variance = 0.0;
    for (int64_t c = 0; c < args.C; ++c) mean += s(c) / static_cast<double>(args.C);
    for (int64_t c = 0; c < args.C; ++c) variance += (s(c) - mean) * (s(c) - mean);
    variance /= static_cast<double>(args.C);
    args.mean[r] = static_cast<float>(mean);
    args.rstd[r] = static_cast<float>(1.0 / std::sqrt(variance + args.eps));
  }
  for (int64_t c = 0; c < args.C; ++c) {
    const double value = s(c);  // read before sum is written: it may be x or residual
    if (args.sum) put(args.sum, dtype, base + c, value);
    if (!args.y) continue;
    const double normed = (value - args.mean[r]) * args.rstd[r];
    const double bias = args.bias ? get(args.bias, dtype, c) : 0.0;
    put(args.y, dtype, base + c, normed * get(args.weight, dtype, c) + bias);
  }
}

// With n = (s - mean) * rstd and g = dy * weight: ds = rstd * (g - mean(g) - n * mean(g * n)).
void norm_row_backward(const LayerNormBackwardArgs& args, int64_t r) {
  const Dtype dtype = args.dtype;
  const int64_t base = r * args.C;
  const double rstd = args.rstd[r];
  const auto g = [&](int64_t c) {
    return get(args.dy, dtype, base + c) * get(args.weight, dtype, c);
  };
  const auto n = [&](int64_t c) { return (get(args.s, dtype, base + c) - args.mean[r]) * rstd; };
  double mean_g = 0.0, mean_gn = 0.0;
  for (int64_t c = 0; c < args.C; ++c) {
    mean_g += g(c) / static_cast<double>(args.C);
    mean_gn += g(c) * n(c) / static_cast<double>(args.C);
  }
  for (int64_t c = 0; c < args.C; ++c) {
    double dx = rstd * (g(c) - mean_g - n(c) * mean_gn);
    if (args.dsum) dx += get(args.dsum, dtype, base + c);
    put(args.dx, dtype, base + c, dx);
  }
}

void put_gradient(const LayerNormBackwardArgs& args, void* to, int64_t c, double sum) {
  if (!to) return;
  if (args.accumulate) sum = plus_fp32(sum, get(to, args.grad_dtype, c));
  put(to, args.grad_dtype, c, sum);
}

}  // namespace

void layernorm(const Context&, const LayerNormArgs& args) {
  for (int64_t r = 0; r < args.R; ++r) norm_row(args, r);
}

// dweight and dbias first: dx may overwrite dy.
void layernorm_backward(const Context&, const LayerNormBackwardArgs& args) {
  for (int64_t c = 0; c < args.C; ++c) {
    double dweight = 0.0, dbias = 0.0;
    for (int64_t r = 0; r < args.R; ++r) {
      const double dy = get(args.dy, args.dtype, r * args.C + c);
      dweight += dy * (get(args.s, args.dtype, r * args.C + c) - args.mean[r]) * args.rstd[r];
      dbias += dy;
    }
    put_gradient(args, args.dweight, c, dweight);
    put_gradient(args, args.dbias, c, dbias);
  }
  for (int64_t r = 0; r < args.R; ++r) norm_row_backward(args, r);
}

}  // namespace weft::ref
