// data/order.h: the order of rows in an epoch.
//
// Shuffled: the rows are cut into blocks of 8,192 consecutive ones; the blocks are permuted; then
// the rows inside each window of 16 permuted blocks. Both permutations are keyed by (seed, epoch)
// and computed at each position, so nothing is stored, whatever the number of rows, and a reader
// touches 16 regions of the files at a time. Off: file order.
#pragma once

#include <cstdint>
#include <vector>

namespace weft {

// A bijection of [0, n): a Feistel network over the next power of two, applied until it lands
// inside. At most two steps are expected.
class Permutation {
 public:
  Permutation(uint64_t n, uint64_t key);
  uint64_t operator()(uint64_t i) const;

 private:
  uint64_t n_, key_;
  int low_bits_, high_bits_;
};

class Order {
 public:
  static constexpr int64_t kBlockRows = 8192;
  static constexpr int64_t kWindowBlocks = 16;

  Order(int64_t num_rows, bool shuffle, uint64_t seed, int64_t epoch);
  int64_t at(int64_t position) const;  // the row, both in [0, num_rows)
  // The first row of each block, in the order in which windows from `position` on touch them.
  std::vector<int64_t> blocks_from(int64_t position) const;
  // The rows of `position` and those after it, at most `count`.
  std::vector<int64_t> rows_from(int64_t position, int64_t count) const;

 private:
  int64_t first_position(int64_t block_slot) const;
  int64_t slot_of(int64_t position) const;

  int64_t num_rows_, num_blocks_;
  bool shuffle_;
  uint64_t key_;
  Permutation blocks_;
  int64_t short_slot_;  // the permuted place of the last block, which may be short
};

}  // namespace weft
