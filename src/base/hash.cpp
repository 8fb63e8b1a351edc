// base/hash.cpp: libxxhash inlined, because it runs at memory speed.
#include "base/hash.h"

#include <fmt/core.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

namespace weft {

uint64_t hash_bytes(const void* bytes, size_t size, uint64_t seed) {
  return XXH64(bytes, size, seed);
}

std::string hash_hex(uint64_t hash) { return fmt::format("{:016x}", hash); }

}  // namespace weft
