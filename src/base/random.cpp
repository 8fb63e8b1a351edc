// base/random.cpp: Philox 4x32 with ten rounds (Salmon et al., SC 2011).
#include "base/random.h"

#include <cmath>

namespace weft {
namespace {

constexpr uint32_t kMultiply0 = 0xD2511F53, kMultiply1 = 0xCD9E8D57;
constexpr uint32_t kWeyl0 = 0x9E3779B9, kWeyl1 = 0xBB67AE85;

double to_unit(uint32_t high, uint32_t low) {
  const uint64_t bits = (uint64_t{high} << 21) ^ (low >> 11);
  return static_cast<double>(bits & ((uint64_t{1} << 53) - 1)) * 0x1.0p-53;
}

}  // namespace

RandomBlock philox(uint64_t key, uint64_t stream, uint64_t position) {
  RandomBlock c = {static_cast<uint32_t>(position), static_cast<uint32_t>(position >> 32),
                   static_cast<uint32_t>(stream), static_cast<uint32_t>(stream >> 32)};
  uint32_t k0 = static_cast<uint32_t>(key), k1 = static_cast<uint32_t>(key >> 32);
  for (int round = 0; round < 10; ++round) {
    const uint64_t p0 = uint64_t{kMultiply0} * c[0], p1 = uint64_t{kMultiply1} * c[2];
    c = {static_cast<uint32_t>(p1 >> 32) ^ c[1] ^ k0, static_cast<uint32_t>(p1),
         static_cast<uint32_t>(p0 >> 32) ^ c[3] ^ k1, static_cast<uint32_t>(p0)};
    k0 += kWeyl0;
    k1 += kWeyl1;
  }
  return c;
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
