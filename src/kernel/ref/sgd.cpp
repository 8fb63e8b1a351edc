// kernel/ref/sgd.cpp: the formula, element by element.
#include "kernel/ref/ref.h"

namespace weft::ref {

void sgd(const Context&, const SgdArgs& args) {
  const SgdScalars& s = args.scalars;
  for (int64_t i = 0; i < args.n; ++i) {
    double p = args.master ? args.master[i] : get(args.p, args.dtype, i);
    double step = get(args.grad, args.grad_dtype, i) * args.grad_scale + s.weight_decay * p;
    if (args.momentum) {
      step += s.momentum * get(args.momentum, args.state_dtype, i);
      put(args.momentum, args.state_dtype, i, step);
    }
    p -= s.lr * step;
    if (args.master) args.master[i] = static_cast<float>(p);
    put(args.p, args.dtype, i, args.master ? args.master[i] : p);
  }
}

}  // namespace weft::ref
