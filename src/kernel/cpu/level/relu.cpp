// kernel/cpu/level/relu.cpp: the positive part and its gradient.
#include "kernel/cpu/level/ops.h"
#include "kernel/cpu/level/rows.h"

namespace weft::WEFT_LEVEL {

void relu(const Context& context, const ReluArgs& args) {
  with_type(args.dtype, [&](auto value) {
    using T = decltype(value);
    each_piece(context, args.n, [&](int64_t first, int64_t count) {
      const T* x = static_cast<const T*>(args.x) + first;
      T* y = static_cast<T*>(args.y) + first;
      each_vector(count, [&](int64_t i, auto part) {
        const Vec v = load(x + i, part);
        store(y + i, zero_where(less(v, zero()), v), part);
      });
    });
  });
}

void relu_backward(const Context& context, const ReluBackwardArgs& args) {
  with_type(args.dtype, [&](auto value) {
    using T = decltype(value);
    each_piece(context, args.n, [&](int64_t first, int64_t count) {
      const T* dy = static_cast<const T*>(args.dy) + first;
      const T* y = static_cast<const T*>(args.y) + first;
      T* dx = static_cast<T*>(args.dx) + first;
      each_vector(count, [&](int64_t i, auto part) {
        store(dx + i, select(less(zero(), load(y + i, part)), load(dy + i, part), zero()), part);
      });
    });
  });
}

}  // namespace weft::WEFT_LEVEL
