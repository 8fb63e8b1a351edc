// kernel/cuda/columns.h: sums over rows, in two stages with one order.
//
// A gradient that is a sum over tokens (of a norm's weight, of a bias) is first summed over some
// rows by each block, into a row of `partials`; the rows of partials are then added in order.
#pragma once

#include "kernel/kernels.h"

namespace weft::cuda {

// Where the columns go: the first ends[0] to parts[0], those up to ends[1] to parts[1] ...
struct ColumnParts {
  void* parts[kMaxParts];
  int64_t ends[kMaxParts];
  int count;
};

// parts (+)= the sum of the rows of partials (rows, columns).
void add_partials(const Context& context, const float* partials, int64_t rows, int64_t columns,
                  const ColumnParts& parts, Dtype dtype, bool accumulate);

}  // namespace weft::cuda
