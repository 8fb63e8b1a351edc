// checkpoint/overlap.h: whether any two of many regions of a tensor share an element.
#pragma once

#include <cstddef>
#include <optional>
#include <utility>
#include <vector>

#include "checkpoint/region.h"

namespace weft {

// Two regions that overlap, by their places in the list, smaller first; none where there are none.
// Every region must be within a tensor of that shape. n log n for cuts along one dim and for flat
// ranges; for a grid of boxes each is compared only with those in its row or column.
std::optional<std::pair<size_t, size_t>> find_overlap(const std::vector<const Region*>& regions,
                                                      const Shape& shape);

}  // namespace weft
