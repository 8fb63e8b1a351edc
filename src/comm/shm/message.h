// comm/shm/message.h: the size of a mailbox chunk.
#pragma once

#include <algorithm>
#include <cstdint>

namespace weft {

inline int64_t message_bytes(int64_t chunk_bytes) {
  return std::min<int64_t>(chunk_bytes, 32 << 10);
}

}  // namespace weft
