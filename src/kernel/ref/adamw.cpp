// kernel/ref/adamw.cpp: the formula, element by element.
#include <cmath>

#include "kernel/ref/ref.h"

namespace weft::ref {

void adamw(const Context&, const AdamwArgs& args) {
  const AdamwScalars& s = args.scalars;
  for (int64_t i = 0; i < args.n; ++i) {
    const double g = get(args.grad, args.grad_dtype, i) * args.grad_scale;
    const double m = s.beta1 * get(args.m, args.state_dtype, i) + (1.0 - s.beta1) * g;
    const double v = s.beta2 * get(args.v, args.state_dtype, i) + (1.0 - s.beta2) * g * g;
    double p = args.master ? args.master[i] : get(args.p, args.dtype, i);
    p *= 1.0 - s.lr * s.weight_decay;
    p -= s.lr / s.bias1 * m / (std::sqrt(v / s.bias2) + s.eps);
    put(args.m, args.state_dtype, i, m);
    put(args.v, args.state_dtype, i, v);
    if (args.master) args.master[i] = static_cast<float>(p);
    put(args.p, args.dtype, i, args.master ? args.master[i] : p);
  }
}

}  // namespace weft::ref
