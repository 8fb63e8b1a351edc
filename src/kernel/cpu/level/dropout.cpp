// kernel/cpu/level/dropout.cpp: dropout of an activation.
#include "kernel/cpu/level/dropout_mask.h"
#include "kernel/cpu/level/ops.h"
#include "kernel/cpu/level/rows.h"

namespace weft::WEFT_LEVEL {
namespace {

// Position t of a row. Columns are drawn by groups that begin at a multiple of four of the logical
// tensor: the first group may begin before this call's columns, the last may end after them.
template <typename T>
[[gnu::flatten]] void drop_columns(const DropoutArgs& args, const HeadDropout& row, int64_t t,
                                   const T* x, T* y) {
  alignas(64) float keep[kDrawnColumns];
  const int64_t first_quad = args.first_column / kDropoutQuad;
  int64_t begin = first_quad * kDropoutQuad - args.first_column;  // of the group, among this call's
  for (int64_t quad = first_quad; begin < args.C; quad += 8, begin += kDrawnColumns) {
    draw_columns(row, t, quad, keep);
    const int64_t first = greater(begin, 0), end = lesser(begin + kDrawnColumns, args.C);
    const float* kept = keep + (first - begin);
    each_vector(end - first, [&](int64_t i, auto part) {
      store(y + first + i, load(x + first + i, part) * load(kept + i, part), part);
    });
  }
}

}  // namespace

void dropout(const Context& context, const DropoutArgs& args) {
  with_type(args.dtype, [&](auto value) {
    using T = decltype(value);
    each_row(context, args.B * args.T, args.C, [&](int64_t r) {
      const int64_t b = r / args.T, at = r * args.C;
      const HeadDropout row = row_dropout(args.rate, args.seed, args.site, args.rows + 2 * b);
      drop_columns(args, row, r - b * args.T, static_cast<const T*>(args.x) + at,
                   static_cast<T*>(args.y) + at);
    });
  });
}

}  // namespace weft::WEFT_LEVEL
