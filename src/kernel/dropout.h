// kernel/dropout.h: which attention probabilities and activations are dropped: one rule for all
// backends.
//
// Attention. With P the softmax, attention's output is (P M) v, where M(t, j) is 0 with probability
// `rate` and else 1 / (1 - rate). M is a pure function of logical positions, so that neither the
// layout of ranks nor the order of work changes it:
//   (key, stream) = Philox-10 of (seed; row of the epoch, epoch, site, head)   128 bits per head
//   words         = Philox-7 of (key; query', key', stream)                    4 x 32 bits
//   kept where words[2 q + k] >= rate 2^32
// One block of words covers the queries t, t + 8 and the keys j, j + 8 of an aligned square of 16 x
// 16: query' = t / 16 * 8 + t % 8, q = t / 8 % 2, and so for the key. These four are what a thread
// of a GPU holds together in the layout of tensor cores, whichever side its rows are.
//
// Activations (B, T, C). Element (t, c) of a row is kept or dropped likewise:
//   (key, stream) = Philox-10 of (seed'; row of the epoch, epoch, site)        128 bits per row
//   words         = Philox-7 of (key; t, c / 4, stream)                        4 x 32 bits
//   kept where words[c % 4] >= rate 2^32
// Four columns that begin at a multiple of four share a block of words. c counts the columns of the
// logical tensor, so a rank that holds any range of columns draws what a single device would. seed'
// differs from attention's, so that the sites of both are numbered independently.
//
// Positions are those in the row, also of packed ones, whose row is the packed one.
#pragma once

#include <cstdint>

#include "base/philox.h"
#include "kernel/kernels.h"

namespace weft {

inline constexpr uint64_t kDropoutSeed = 0x64726f706f7574;  // separates these draws from others
inline constexpr uint64_t kElementDropoutSeed = 0x656c656d656e74;  // ... and these from attention's
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

// The word that decides about query t and key j.
constexpr uint32_t dropout_word(const DropoutKey& key, int64_t t, int64_t j) {
  return dropout_words(key, dropout_line(t), dropout_line(j)).word[t / 8 % 2 * 2 + j / 8 % 2];
}

// Of one row of an activation.
constexpr DropoutKey element_dropout_key(uint64_t seed, int64_t site, int64_t epoch, int64_t row) {
  return dropout_key(seed ^ kElementDropoutSeed, site, 0, epoch, row);
}
// The words of columns 4 quad to 4 quad + 3 at position t.
constexpr PhiloxBlock element_dropout_words(const DropoutKey& key, int64_t t, int64_t quad) {
  return dropout_words(key, static_cast<uint32_t>(t), static_cast<uint32_t>(quad));
}
inline constexpr int64_t kDropoutQuad = 4;

// Words below it drop.
constexpr uint32_t dropout_threshold(double rate) {
  const double t = rate * 0x1p32 + 0.5;
  return t >= 0x1p32 ? UINT32_MAX : static_cast<uint32_t>(t);
}
constexpr float dropout_scale(double rate) { return static_cast<float>(1.0 / (1.0 - rate)); }

// Head h of row b of a call, for CPU code.
struct HeadDropout {
  DropoutKey key;
  uint32_t threshold;
  float scale;
};
HeadDropout head_dropout(const AttentionDropout& dropout, int64_t b, int64_t h);

// The same for a row of an activation; row: its epoch and its index in the epoch.
HeadDropout row_dropout(double rate, uint64_t seed, int64_t site, const int64_t* row);

}  // namespace weft
