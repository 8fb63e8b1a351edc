// kernel/cpu/level/rows.h: how rows and columns are divided among the threads.
//
// The division into tasks never affects bits: a row's result is independent, and a sum over rows
// consists of partial sums over kRowBlock rows each, added in order.
#pragma once

#include "kernel/cpu/level/simd.h"
#include "kernel/kernels.h"

namespace weft::WEFT_LEVEL {

inline constexpr int64_t kTaskElements = 1 << 15;   // enough work to be worth dispatching
inline constexpr int64_t kLeastElements = 1 << 12;  // still more than it takes to wake a thread
inline constexpr int64_t kRowBlock = 64;            // rows of one partial sum

// body(row) for every row, several rows per task; fewer where threads would idle otherwise.
template <typename Body>
WEFT_INLINE void each_row(const Context& context, int64_t rows, int64_t columns, const Body& body) {
  const int64_t width = greater(1, columns), each = blocks_of(rows, context.pool->num_threads());
  const int64_t step =
      greater(1, lesser(kTaskElements / width, greater(each, kLeastElements / width)));
  context.pool->run(blocks_of(rows, step), [&](int64_t task, int) {
    const int64_t end = lesser(rows, (task + 1) * step);
    for (int64_t r = task * step; r < end; ++r) body(r);
  });
}

// body(first, count) for pieces of a flat range; every piece but the last is whole vectors.
template <typename Body>
WEFT_INLINE void each_piece(const Context& context, int64_t n, const Body& body) {
  context.pool->run(blocks_of(n, kTaskElements), [&](int64_t task, int) {
    const int64_t first = task * kTaskElements;
    body(first, lesser(kTaskElements, n - first));
  });
}

// to[c] (+)= the sum of partials (blocks, columns)[.][first + c] in order.
template <typename T>
WEFT_INLINE void add_partials(const Context& context, const float* partials, int64_t blocks,
                              int64_t columns, int64_t first, int64_t count, T* to,
                              bool accumulate) {
  constexpr int64_t kColumns = 256;
  context.pool->run(blocks_of(count, kColumns), [&](int64_t task, int) {
    const int64_t begin = task * kColumns;
    each_vector(lesser(kColumns, count - begin), [&](int64_t i, auto part) {
      const int64_t c = begin + i;
      Vec sum = zero();
      for (int64_t block = 0; block < blocks; ++block) {
        sum = sum + load(partials + block * columns + first + c, part);
      }
      if (accumulate) sum = load(to + c, part) + sum;
      store(to + c, sum, part);
    });
  });
}

}  // namespace weft::WEFT_LEVEL
