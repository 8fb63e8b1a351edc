// base/philox.h: Philox 4x32 (Salmon et al., SC 2011): 128 random bits of a key and a counter.
//
// Ten rounds are the authors' choice; seven are the fewest that pass their tests (BigCrush). It is
// constexpr so that a GPU's code can call it too.
#pragma once

#include <cstdint>

namespace weft {

struct PhiloxBlock {
  uint32_t word[4];
};

inline constexpr uint32_t kPhiloxMultiply0 = 0xD2511F53, kPhiloxMultiply1 = 0xCD9E8D57;
inline constexpr uint32_t kPhiloxWeyl0 = 0x9E3779B9, kPhiloxWeyl1 = 0xBB67AE85;

template <int kRounds>
constexpr PhiloxBlock philox_rounds(PhiloxBlock c, uint32_t k0, uint32_t k1) {
  for (int round = 0; round < kRounds; ++round) {
    const uint64_t p0 = uint64_t{kPhiloxMultiply0} * c.word[0],
                   p1 = uint64_t{kPhiloxMultiply1} * c.word[2];
    c = {{static_cast<uint32_t>(p1 >> 32) ^ c.word[1] ^ k0, static_cast<uint32_t>(p1),
          static_cast<uint32_t>(p0 >> 32) ^ c.word[3] ^ k1, static_cast<uint32_t>(p0)}};
    k0 += kPhiloxWeyl0;
    k1 += kPhiloxWeyl1;
  }
  return c;
}

}  // namespace weft
