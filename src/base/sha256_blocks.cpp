// base/sha256_blocks.cpp: FIPS 180-4, section 6.2, in its own notation.
#include "base/sha256_blocks.h"

#include <array>
#include <bit>

// Clang declares the intrinsics only where the whole program is built for such processors.
#if defined(__aarch64__) && defined(__linux__) && !defined(__clang__)
#define WEFT_SHA256_ARM 1
#include <arm_neon.h>
#include <asm/hwcap.h>
#include <sys/auxv.h>
#endif

namespace weft {
namespace {

constexpr std::array<uint32_t, 64> kRound = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

uint32_t read_big_endian(const uint8_t* in) {
  return static_cast<uint32_t>(in[0]) << 24 | static_cast<uint32_t>(in[1]) << 16 |
         static_cast<uint32_t>(in[2]) << 8 | in[3];
}

void compress(uint32_t* state, const uint8_t* block) {
  std::array<uint32_t, 64> w;
  for (size_t t = 0; t < 16; ++t) w[t] = read_big_endian(block + 4 * t);
  for (size_t t = 16; t < 64; ++t) {
    const uint32_t x = w[t - 15], y = w[t - 2];
    const uint32_t sigma0 = std::rotr(x, 7) ^ std::rotr(x, 18) ^ (x >> 3);
    const uint32_t sigma1 = std::rotr(y, 17) ^ std::rotr(y, 19) ^ (y >> 10);
    w[t] = sigma1 + w[t - 7] + sigma0 + w[t - 16];
  }
  uint32_t a = state[0], b = state[1], c = state[2], d = state[3];
  uint32_t e = state[4], f = state[5], g = state[6], h = state[7];
  for (size_t t = 0; t < 64; ++t) {
    const uint32_t sum1 = std::rotr(e, 6) ^ std::rotr(e, 11) ^ std::rotr(e, 25);
    const uint32_t t1 = h + sum1 + ((e & f) ^ (~e & g)) + kRound[t] + w[t];
    const uint32_t sum0 = std::rotr(a, 2) ^ std::rotr(a, 13) ^ std::rotr(a, 22);
    const uint32_t t2 = sum0 + ((a & b) ^ (a & c) ^ (b & c));
    h = g, g = f, f = e, e = d + t1, d = c, c = b, b = a, a = t1 + t2;
  }
  const std::array<uint32_t, 8> added = {a, b, c, d, e, f, g, h};
  for (size_t i = 0; i < 8; ++i) state[i] += added[i];
}

#ifdef WEFT_SHA256_ARM

bool has_instructions() { return (::getauxval(AT_HWCAP) & HWCAP_SHA2) != 0; }

// Four rounds at a time: vsha256h and vsha256h2 are one half of the state each, su0 and su1 the
// message schedule.
__attribute__((target("+crypto"))) void add_blocks(uint32_t* state, const uint8_t* at,
                                                   size_t count) {
  uint32x4_t abcd = vld1q_u32(state), efgh = vld1q_u32(state + 4);
  for (; count > 0; --count, at += 64) {
    const uint32x4_t abcd_before = abcd, efgh_before = efgh;
    uint32x4_t w[4];
    for (size_t i = 0; i < 4; ++i) w[i] = vreinterpretq_u32_u8(vrev32q_u8(vld1q_u8(at + 16 * i)));
    for (size_t t = 0; t < 16; ++t) {
      uint32x4_t& now = w[t % 4];
      const uint32x4_t words = vaddq_u32(now, vld1q_u32(kRound.data() + 4 * t));
      if (t < 12)
        now = vsha256su1q_u32(vsha256su0q_u32(now, w[(t + 1) % 4]), w[(t + 2) % 4], w[(t + 3) % 4]);
      const uint32x4_t abcd_here = abcd;
      abcd = vsha256hq_u32(abcd, efgh, words);
      efgh = vsha256h2q_u32(efgh, abcd_here, words);
    }
    abcd = vaddq_u32(abcd, abcd_before);
    efgh = vaddq_u32(efgh, efgh_before);
  }
  vst1q_u32(state, abcd);
  vst1q_u32(state + 4, efgh);
}

#endif

}  // namespace

void sha256_blocks_portable(uint32_t* state, const uint8_t* blocks, size_t count) {
  for (; count > 0; --count, blocks += 64) compress(state, blocks);
}

void sha256_blocks(uint32_t* state, const uint8_t* blocks, size_t count) {
#ifdef WEFT_SHA256_ARM
  static const bool is_fast = has_instructions();
  if (is_fast) return add_blocks(state, blocks, count);
#endif
  sha256_blocks_portable(state, blocks, count);
}

}  // namespace weft
