// kernel/cpu/level/scale.cpp: y = x * factor.
#include "kernel/cpu/level/ops.h"
#include "kernel/cpu/level/rows.h"

namespace weft::WEFT_LEVEL {

void scale(const Context& context, const ScaleArgs& args) {
  with_type(args.dtype, [&](auto value) {
    using T = decltype(value);
    each_piece(context, args.n, [&](int64_t first, int64_t count) {
      const T* x = static_cast<const T*>(args.x) + first;
      T* y = static_cast<T*>(args.y) + first;
      const Vec factor = splat(args.factor);
      each_vector(count,
                  [&](int64_t i, auto part) { store(y + i, load(x + i, part) * factor, part); });
    });
  });
}

}  // namespace weft::WEFT_LEVEL
