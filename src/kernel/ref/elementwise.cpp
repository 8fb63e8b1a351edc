// kernel/ref/elementwise.cpp: sums over rows and over elements.
#include <algorithm>

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

}  // namespace weft::ref
