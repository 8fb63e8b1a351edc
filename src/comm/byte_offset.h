// comm/byte_offset.h: an address some bytes behind another.
#pragma once

#include <cstdint>

namespace weft {

inline char* byte_at(void* base, int64_t offset) { return static_cast<char*>(base) + offset; }
inline const char* byte_at(const void* base, int64_t offset) {
  return static_cast<const char*>(base) + offset;
}

}  // namespace weft
