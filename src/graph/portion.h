// graph/portion.h: walking the elements of a portion as runs of the logical tensor.
#pragma once

#include <algorithm>

#include "graph/graph.h"

namespace weft {

inline int64_t portion_elements(const Portion& p) { return p.end - p.begin; }

// fn(logical, count, local): `count` elements of the portion, starting at its element `local`, are
// the elements of the whole tensor from `logical` on. Runs come in order and cover the portion.
template <typename Fn>
void for_each_run(const Portion& p, const Fn& fn) {
  // Dimensions that the box covers entirely form one run with the innermost one that it does not.
  size_t inner = p.shape.size();
  int64_t row = 1;  // elements of the box that are contiguous in the tensor
  while (inner > 0) {
    --inner;
    row *= p.extent[inner];
    if (p.extent[inner] != p.shape[inner]) break;
  }
  if (p.shape.empty()) row = 1;
  for (int64_t at = p.begin; at < p.end;) {
    const int64_t in_row = at % row, count = std::min(row - in_row, p.end - at);
    // The index of the row's first element, dimension by dimension.
    int64_t rest = at - in_row, logical = 0, stride = 1;
    for (size_t d = p.shape.size(); d-- > 0;) {
      const int64_t i = rest % p.extent[d];
      rest /= p.extent[d];
      logical += (p.offset[d] + i) * stride;
      stride *= p.shape[d];
    }
    fn(logical + in_row, count, at - p.begin);
    at += count;
  }
}

}  // namespace weft
