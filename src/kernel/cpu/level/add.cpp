// kernel/cpu/level/add.cpp: out = a + b.
#include "kernel/cpu/level/ops.h"
#include "kernel/cpu/level/rows.h"

namespace weft::WEFT_LEVEL {

void add(const Context& context, const AddArgs& args) {
  with_type(args.dtype, [&](auto value) {
    using T = decltype(value);
    each_piece(context, args.n, [&](int64_t first, int64_t count) {
      const T* a = static_cast<const T*>(args.a) + first;
      const T* b = static_cast<const T*>(args.b) + first;
      T* out = static_cast<T*>(args.out) + first;
      each_vector(count, [&](int64_t i, auto part) {
        store(out + i, load(a + i, part) + load(b + i, part), part);
      });
    });
  });
}

}  // namespace weft::WEFT_LEVEL
