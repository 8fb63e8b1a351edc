// base/random.cpp: Philox 4x32 with ten rounds, and what is drawn from it.
#include "base/random.h"

#include <cmath>

#include "base/philox.h"

namespace weft {
namespace {

double to_unit(uint32_t high, uint32_t low) {
  const uint64_t bits = (uint64_t{high} << 21) ^ (low >> 11);
  return static_cast<double>(bits & ((uint64_t{1} << 53) - 1)) * 0x1.0p-53;
}

}  // namespace

RandomBlock philox(uint64_t key, uint64_t stream, uint64_t position) {
  const PhiloxBlock block =
      philox_rounds<10>({{static_cast<uint32_t>(position), static_cast<uint32_t>(position >> 32),
                          static_cast<uint32_t>(stream), static_cast<uint32_t>(stream >> 32)}},
                        static_cast<uint32_t>(key), static_cast<uint32_t>(key >> 32));
  return {block.word[0], block.word[1], block.word[2], block.word[3]};
}

double uniform_at(uint64_t key, uint64_t stream, uint64_t i) {
  const RandomBlock b = philox(key, stream, i);
  return to_unit(b[0], b[1]);
}

std::array<double, 2> normal_pair(uint64_t key, uint64_t stream, uint64_t pair) {
  const RandomBlock b = philox(key, stream, pair);
  const double u = 1.0 - to_unit(b[0], b[1]);  // in (0, 1]: the logarithm is finite
  const double angle = 2.0 * 3.14159265358979323846 * to_unit(b[2], b[3]);
  const double radius = std::sqrt(-2.0 * std::log(u));
  return {radius * std::cos(angle), radius * std::sin(angle)};
}

}  // namespace weft
