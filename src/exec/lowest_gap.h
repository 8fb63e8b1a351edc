// exec/lowest_gap.h: finds the lowest free place in memory for a value with a lifetime.
//
// Spans that have a place are kept by length of life, then sorted by offset, in blocks with a
// summary each. A search skips blocks of which nothing is alive, and blocks that are alive as a
// whole and have no gap of the wanted size: the saved activations of all earlier layers, say, are a
// few blocks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace weft {

struct PlacedSpan {
  int64_t offset = 0, bytes = 0;
  int first = 0, last = 0;  // the nodes between which it is alive
};

class LowestGap {
 public:
  explicit LowestGap(int num_nodes) : num_nodes_(num_nodes) {}
  // The lowest offset at which s.bytes overlap no added span whose lifetime overlaps that of s.
  int64_t find(const PlacedSpan& s);
  void add(const PlacedSpan& s);
  int64_t num_visits() const { return num_visits_; }  // of blocks and spans, in all searches

 private:
  struct Block {
    std::vector<PlacedSpan> spans;
    uint64_t times = 0;  // a bit for each 64th of all nodes: something is alive then
    int most_first = 0, least_last = 0;
    int64_t begin = 0, end = 0;  // the lowest offset, and the highest end
    int64_t largest_gap = 0;     // between neighbours, if all were alive
    void summarize(int num_nodes);
    bool is_alive(const PlacedSpan& s) const {
      return least_last >= s.first && most_first <= s.last;
    }
  };
  using Row = std::vector<Block>;
  struct Cursor {
    size_t block = 0, span = 0;
  };
  // The lowest free offset from `at` on, if there were only this row.
  int64_t next_free(const Row& row, const PlacedSpan& s, int64_t at, Cursor* cursor);

  int num_nodes_;
  std::vector<Row> rows_;  // by the number of bits of the length of life
  std::vector<Cursor> cursors_;
  int64_t num_visits_ = 0;
};

}  // namespace weft
