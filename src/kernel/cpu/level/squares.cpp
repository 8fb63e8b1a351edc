// kernel/cpu/level/squares.cpp: sums of squares by cells of 256 elements.
//
// A cell is sixteen float64 sums, element i going to sum i % 16, and these are added in a tree: the
// same order at every vector width, so every level yields the same bits.
#include "kernel/cpu/level/ops.h"
#include "kernel/cpu/level/rows.h"
#include "tensor/cell.h"

namespace weft::WEFT_LEVEL {
namespace {

constexpr int64_t kCell = kNormCell;
constexpr int kSums = 16;
constexpr int kVectors = kSums / kLanes;

template <typename T>
WEFT_INLINE void add_sixteen(Squares (&sums)[kVectors], const T* x) {
  for (int k = 0; k < kVectors; ++k) add_squares(sums[k], load(x + k * kLanes));
}

template <typename T>
[[gnu::flatten]] double cell_squares(const T* x, int64_t n) {
  Squares sums[kVectors];
  for (Squares& s : sums) s = no_squares();
  int64_t i = 0;
  for (; i + kSums <= n; i += kSums) add_sixteen(sums, x + i);
  if (i < n) {
    T rest[kSums] = {};
    for (int64_t k = 0; i + k < n; ++k) rest[k] = x[i + k];
    add_sixteen(sums, rest);
  }
  double lanes[kSums];
  for (int k = 0; k < kVectors; ++k) store(lanes + k * kLanes, sums[k]);
  for (int step = kSums / 2; step > 0; step /= 2) {
    for (int k = 0; k < step; ++k) lanes[k] += lanes[k + step];
  }
  return lanes[0];
}

}  // namespace

void squares(const Context& context, const SquaresArgs& args) {
  static_assert(kTaskElements % kCell == 0);
  with_type(args.dtype, [&](auto value) {
    using T = decltype(value);
    each_piece(context, args.n, [&](int64_t first, int64_t count) {
      for (int64_t cell = first; cell < first + count; cell += kCell) {
        args.partials[cell / kCell] =
            cell_squares(static_cast<const T*>(args.x) + cell, lesser(kCell, args.n - cell));
      }
    });
  });
}

}  // namespace weft::WEFT_LEVEL
