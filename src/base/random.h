// base/random.h: counter-based random numbers (Philox 4x32-10): a draw is a pure function of its
// key and its position, so no layout, thread count or order of work can change it.
#pragma once

#include <array>
#include <cstdint>

namespace weft {

using RandomBlock = std::array<uint32_t, 4>;

// The 128 random bits at `position` of the stream `key`.
RandomBlock philox(uint64_t key, uint64_t stream, uint64_t position);

// Uniform in [0, 1), 53 bits, element `i` of the stream.
double uniform_at(uint64_t key, uint64_t stream, uint64_t i);
// Standard normals, elements 2 * pair and 2 * pair + 1 of the stream (Box-Muller on one block).
std::array<double, 2> normal_pair(uint64_t key, uint64_t stream, uint64_t pair);
inline double normal_at(uint64_t key, uint64_t stream, uint64_t i) {
  return normal_pair(key, stream, i / 2)[i % 2];
}

}  // namespace weft
