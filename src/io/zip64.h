// io/zip64.h: what stands in a zip file's 32-bit field whose value is in the zip64 field.
#pragma once

#include <cstdint>

namespace weft {

inline constexpr uint64_t kIn64 = 0xffffffff;

}  // namespace weft
