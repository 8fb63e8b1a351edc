// exec/lowest_gap.h: finds the lowest free place in memory for a value with a lifetime.
//
// Placed spans are grouped by length of life and sorted by offset, in blocks with a summary each. A
// search skips a block if none of its spans is alive. A search also skips a block if all of its
// spans are alive and no gap between them is large enough. For example, the saved activations of
// all earlier layers are a few blocks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace weft {

struct PlacedSpan {
  int64_t offset = 0, bytes = 0;
  int first = 0, last = 0;  // first and last node of its lifetime
};

class LowestGap {
 public:
  explicit LowestGap(int num_nodes) : num_nodes_(num_nodes) {}
  // The lowest offset at which s.bytes overlap no added span whose lifetime overlaps that of s.
  int64_t find(const PlacedSpan& s);
  void add(const PlacedSpan& s);
  int64_t num_visits() const { return num_visits_; }  // blocks and spans visited by all searches

 private:
  struct Block {
    std::vector<PlacedSpan> spans;
    uint64_t times = 0;  // one bit per 64th of the nodes: a span is alive there
    int most_first = 0, least_last = 0;
    int64_t begin = 0, end = 0;  // the lowest offset, and the highest end
    int64_t largest_gap = 0;     // between neighbours, if all spans were alive
    void summarize(int num_nodes);
    bool is_alive(const PlacedSpan& s) const {
      return least_last >= s.first && most_first <= s.last;
    }
  };
  using Row = std::vector<Block>;
  struct Cursor {
    size_t block = 0, span = 0;
  };
  // The lowest free offset at or above `at`, considering only this row.
  int64_t next_free(const Row& row, const PlacedSpan& s, int64_t at, Cursor* cursor);

  int num_nodes_;
  std::vector<Row> rows_;  // index: bit width of the length of life
  std::vector<Cursor> cursors_;
  int64_t num_visits_ = 0;
};

}  // namespace weft
