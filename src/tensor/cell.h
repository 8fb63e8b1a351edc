// tensor/cell.h: the unit of the gradient norm.
#pragma once

#include <cstdint>

namespace weft {

// This many consecutive elements make one partial sum of squares, in a fixed order; buckets are cut
// at multiples of it, so that no cell spans two ranks.
inline constexpr int64_t kNormCell = 256;

}  // namespace weft
