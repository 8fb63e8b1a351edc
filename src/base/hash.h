// base/hash.h: a 64-bit hash of bytes, the same on every machine (XXH64's published algorithm).
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace weft {

uint64_t hash_bytes(const void* bytes, size_t size, uint64_t seed = 0);
inline uint64_t hash_text(std::string_view text, uint64_t seed = 0) {
  return hash_bytes(text.data(), text.size(), seed);
}
std::string hash_hex(uint64_t hash);  // 16 digits

}  // namespace weft
