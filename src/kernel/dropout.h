// kernel/dropout.h: which of attention's probabilities are dropped: one rule for all back ends.
//
// With P the softmax, attention's output is (P M) v, where M(t, j) is 0 with probability `rate` and
// else 1 / (1 - rate). M is a pure function of logical places, so that no layout of ranks and no
// order of work changes it:
//   (key, stream) = Philox-10 of (seed; row of the epoch, epoch, site, head)   128 bits a head
//   words         = Philox-7 of (key; query', key', stream)                    4 x 32 bits
//   kept where words[2 q + k] >= rate 2^32
// One block of words serves the queries t, t + 8 and the keys j, j + 8 of an aligned square of
// 16 x 16: query' = t / 16 * 8 + t % 8, q = t / 8 % 2, and so for the key. These four are what a
// thread of a GPU holds together in the layout of tensor cores, whichever side its rows are.
// Positions are those in the row, also of packed ones.
#pragma once

#include <cstdint>

#include "base/philox.h"
#include "kernel/kernels.h"

namespace weft {

inline constexpr uint64_t kDropoutSeed = 0x64726f706f7574;  // tells these draws from other ones
inline constexpr int kDropoutRounds = 7;

// Of one head of one row.
struct DropoutKey {
  uint32_t key[2], stream[2];
};

constexpr DropoutKey dropout_key(uint64_t seed, int64_t site, int64_t head, int64_t epoch,
                                 int64_t row) {
  const uint64_t k = seed ^ kDropoutSeed, r = static_cast<uint64_t>(row);
  const PhiloxBlock b =
      philox_rounds<10>({{static_cast<uint32_t>(r), static_cast<uint32_t>(r >> 32),
                          static_cast<uint32_t>(site << 16 | head), static_cast<uint32_t>(epoch)}},
                        static_cast<uint32_t>(k), static_cast<uint32_t>(k >> 32));
  return {{b.word[0], b.word[1]}, {b.word[2], b.word[3]}};
}

// A position's number among those that share their blocks with the one eight further.
constexpr uint32_t dropout_line(int64_t position) {
  return static_cast<uint32_t>(position / 16 * 8 + position % 8);
}

constexpr PhiloxBlock dropout_words(const DropoutKey& key, uint32_t query_line, uint32_t key_line) {
  return philox_rounds<kDropoutRounds>({{query_line, key_line, key.stream[0], key.stream[1]}},
                                       key.key[0], key.key[1]);
}

// The word that decides over query t and key j.
constexpr uint32_t dropout_word(const DropoutKey& key, int64_t t, int64_t j) {
  return dropout_words(key, dropout_line(t), dropout_line(j)).word[t / 8 % 2 * 2 + j / 8 % 2];
}

// Words below it drop.
constexpr uint32_t dropout_threshold(double rate) {
  const double t = rate * 0x1p32 + 0.5;
  return t >= 0x1p32 ? UINT32_MAX : static_cast<uint32_t>(t);
}
constexpr float dropout_scale(double rate) { return static_cast<float>(1.0 / (1.0 - rate)); }

// Head h of row b of a call, for code of the CPU.
struct HeadDropout {
  DropoutKey key;
  uint32_t threshold;
  float scale;
};
HeadDropout head_dropout(const AttentionDropout& dropout, int64_t b, int64_t h);

}  // namespace weft
