// base/round_up.h: the next multiple.
#pragma once

#include <cstdint>

namespace weft {

constexpr int64_t round_up(int64_t value, int64_t step) { return (value + step - 1) / step * step; }

}  // namespace weft
