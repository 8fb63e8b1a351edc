// kernel/ref/elementwise.cpp: sums over rows and over elements, and the optimizer's step.
#include <algorithm>
#include <cmath>

#include "kernel/ref/ref.h"
#include "tensor/cell.h"

namespace weft::ref {

void bias_backward(const Context&, const BiasBackwardArgs& args) {
  int64_t first = 0;
  for (int part = 0; part < args.count; first += args.cols[part++]) {
    for (int64_t n = 0; n < args.cols[part]; ++n) {
      double sum = 0.0;
      for (int64_t r = 0; r < args.R; ++r) sum += get(args.dy, args.dtype, r * args.N + first + n);
      if (args.accumulate) sum = plus_fp32(sum, get(args.db[part], args.grad_dtype, n));
      put(args.db[part], args.grad_dtype, n, sum);
    }
  }
}

void add(const Context&, const AddArgs& args) {
  for (int64_t i = 0; i < args.n; ++i) {
    put(args.out, args.dtype, i, get(args.a, args.dtype, i) + get(args.b, args.dtype, i));
  }
}

void squares(const Context&, const SquaresArgs& args) {
  for (int64_t first = 0; first < args.n; first += kNormCell) {
    double sum = 0.0;
    for (int64_t i = first; i < std::min(first + kNormCell, args.n); ++i) {
      sum += get(args.x, args.dtype, i) * get(args.x, args.dtype, i);
    }
    args.partials[first / kNormCell] = sum;
  }
}

void adamw(const Context&, const AdamwArgs& args) {
  for (int64_t i = 0; i < args.n; ++i) {
    const double g = get(args.grad, args.grad_dtype, i) * args.grad_scale;
    const double m = args.beta1 * get(args.m, args.state_dtype, i) + (1.0 - args.beta1) * g;
    const double v = args.beta2 * get(args.v, args.state_dtype, i) + (1.0 - args.beta2) * g * g;
    double p = args.master ? args.master[i] : get(args.p, args.dtype, i);
    p *= 1.0 - args.lr * args.weight_decay;
    p -= args.lr / args.bias1 * m / (std::sqrt(v / args.bias2) + args.eps);
    put(args.m, args.state_dtype, i, m);
    put(args.v, args.state_dtype, i, v);
    if (args.master) args.master[i] = static_cast<float>(p);
    put(args.p, args.dtype, i, args.master ? args.master[i] : p);
  }
}

}  // namespace weft::ref
