// kernel/ref/relu.cpp: the positive part and its gradient.
#include "kernel/ref/ref.h"

namespace weft::ref {

void relu(const Context&, const ReluArgs& args) {
  for (int64_t i = 0; i < args.n; ++i) {
    const double x = get(args.x, args.dtype, i);
    put(args.y, args.dtype, i, x < 0.0 ? 0.0 : x);
  }
}

void relu_backward(const Context&, const ReluBackwardArgs& args) {
  for (int64_t i = 0; i < args.n; ++i) {
    const double dy = get(args.dy, args.dtype, i);
    put(args.dx, args.dtype, i, get(args.y, args.dtype, i) > 0.0 ? dy : 0.0);
  }
}

}  // namespace weft::ref
