// kernel/ref/scale.cpp: y = x * factor.
#include "kernel/ref/ref.h"

namespace weft::ref {

void scale(const Context&, const ScaleArgs& args) {
  for (int64_t i = 0; i < args.n; ++i) {
    put(args.y, args.dtype, i, get(args.x, args.dtype, i) * double{args.factor});
  }
}

}  // namespace weft::ref
