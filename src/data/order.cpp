// data/order.cpp: the shuffled order, computed position by position.
#include "data/order.h"

#include <algorithm>
#include <bit>

#include "base/error.h"
#include "base/random.h"

namespace weft {
namespace {

constexpr int kRounds = 8;

// splitmix64's finalizer: every input bit affects every output bit.
uint64_t mix(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
  return x ^ (x >> 31);
}

uint64_t key_of(uint64_t seed, int64_t epoch) {
  const RandomBlock b = philox(seed, 0x6f72646572, static_cast<uint64_t>(epoch));
  return (uint64_t{b[0]} << 32) | b[1];
}

int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

}  // namespace

Permutation::Permutation(uint64_t n, uint64_t key) : n_(n), key_(key) {
  const int bits = std::max(2, static_cast<int>(std::bit_width(n > 0 ? n - 1 : 0)));
  low_bits_ = bits / 2;
  high_bits_ = bits - low_bits_;
}

uint64_t Permutation::operator()(uint64_t i) const {
  ensure(i < n_, "position outside the permutation");
  const uint64_t low_mask = (uint64_t{1} << low_bits_) - 1;
  const uint64_t high_mask = (uint64_t{1} << high_bits_) - 1;
  do {
    // Each half is xored in turn with a keyed hash of the other: a bijection, whatever the hash.
    uint64_t low = i & low_mask, high = i >> low_bits_;
    for (uint64_t round = 0; round < kRounds; round += 2) {
      low ^= mix(key_ + round * 0x9E3779B97F4A7C15u + (high << 8)) & low_mask;
      high ^= mix(~key_ + round * 0x9E3779B97F4A7C15u + (low << 8)) & high_mask;
    }
    i = (high << low_bits_) | low;
  } while (i >= n_);
  return i;
}

Order::Order(int64_t num_rows, bool shuffle, uint64_t seed, int64_t epoch)
    : num_rows_(num_rows),
      num_blocks_(ceil_div(num_rows, kBlockRows)),
      shuffle_(shuffle),
      key_(key_of(seed, epoch)),
      blocks_(static_cast<uint64_t>(num_blocks_), key_),
      short_slot_(num_blocks_) {
  if (!shuffle || num_blocks_ == 0) return;
  // Walks the cycle through the last block to find the inverse.
  const uint64_t last = static_cast<uint64_t>(num_blocks_ - 1);
  uint64_t slot = last;
  while (blocks_(slot) != last) slot = blocks_(slot);
  short_slot_ = static_cast<int64_t>(slot);
}

// Positions of the slots after the short block's begin earlier by what it lacks.
int64_t Order::first_position(int64_t block_slot) const {
  const int64_t lack = num_blocks_ * kBlockRows - num_rows_;
  return block_slot * kBlockRows - (block_slot > short_slot_ ? lack : 0);
}

// The slot of a position, were all blocks whole, is exact or one too small.
int64_t Order::slot_of(int64_t position) const {
  int64_t slot = std::min(position / kBlockRows, num_blocks_ - 1);
  while (slot + 1 < num_blocks_ && first_position(slot + 1) <= position) ++slot;
  return slot;
}

std::vector<int64_t> Order::blocks_from(int64_t position) const {
  std::vector<int64_t> rows;
  if (num_rows_ == 0) return rows;
  int64_t slot = slot_of(std::min(position, num_rows_ - 1));
  if (shuffle_) slot -= slot % kWindowBlocks;
  for (int64_t i = 0; i < num_blocks_; ++i, slot = (slot + 1) % num_blocks_) {
    const auto at = static_cast<uint64_t>(slot);
    rows.push_back((shuffle_ ? static_cast<int64_t>(blocks_(at)) : slot) * kBlockRows);
  }
  return rows;
}

std::vector<int64_t> Order::rows_from(int64_t position, int64_t count) const {
  std::vector<int64_t> rows;
  const int64_t end = std::min(num_rows_, position + count);
  for (; position < end; ++position) rows.push_back(at(position));
  return rows;
}

int64_t Order::at(int64_t position) const {
  ensure(position >= 0 && position < num_rows_, "position outside the epoch");
  if (!shuffle_) return position;
  const int64_t window = slot_of(position) / kWindowBlocks;
  const int64_t begin = first_position(window * kWindowBlocks);
  const int64_t end_slot = std::min((window + 1) * kWindowBlocks, num_blocks_);
  const int64_t end = first_position(end_slot);
  const Permutation inside(static_cast<uint64_t>(end - begin),
                           mix(key_ + static_cast<uint64_t>(window) + 1));
  const int64_t p = begin + static_cast<int64_t>(inside(static_cast<uint64_t>(position - begin)));
  const int64_t slot = slot_of(p);
  const int64_t block = static_cast<int64_t>(blocks_(static_cast<uint64_t>(slot)));
  return block * kBlockRows + (p - first_position(slot));
}

}  // namespace weft
