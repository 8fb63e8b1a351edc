// kernel/ref/gelu.cpp: x times the normal distribution function of x, and its gradient.
#include <cmath>
#include <numbers>

#include "kernel/ref/gelu_slope.h"
#include "kernel/ref/ref.h"

namespace weft::ref {
namespace {

Gelu exact_gelu(double x) {
  const double below = 0.5 * std::erfc(-x / std::numbers::sqrt2);  // the distribution function
  const double density = std::exp(-0.5 * x * x) * std::numbers::inv_sqrtpi / std::numbers::sqrt2;
  return {x * below, below + x * density};
}

}  // namespace

void gelu(const Context&, const GeluArgs& args) {
  for (int64_t i = 0; i < args.n; ++i) {
    const double x = get(args.x, args.dtype, i);
    put(args.y, args.dtype, i, (args.approximate_tanh ? gelu_with_tanh(x) : exact_gelu(x)).y);
  }
}

void gelu_backward(const Context&, const GeluBackwardArgs& args) {
  for (int64_t i = 0; i < args.n; ++i) {
    const double x = get(args.x, args.dtype, i), dy = get(args.dy, args.dtype, i);
    const Gelu at = args.approximate_tanh ? gelu_with_tanh(x) : exact_gelu(x);
    put(args.dx, args.dtype, i, dy * at.slope);
    if (args.y) put(args.y, args.dtype, i, at.y);
  }
}

}  // namespace weft::ref
