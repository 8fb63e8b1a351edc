// exec/lowest_gap.cpp: searches and splits blocks of placed spans.
#include "exec/lowest_gap.h"

#include <algorithm>
#include <bit>

namespace weft {
namespace {

constexpr size_t kMostSpans = 128;  // per block; a larger block is split

uint64_t times_of(const PlacedSpan& s, int num_nodes) {
  const auto bit = [&](int node) { return static_cast<int>(int64_t{64} * node / num_nodes); };
  return (~uint64_t{0} << bit(s.first)) & (~uint64_t{0} >> (63 - bit(s.last)));
}

}  // namespace

void LowestGap::Block::summarize(int num_nodes) {
  times = 0;
  most_first = spans[0].first;
  least_last = spans[0].last;
  begin = end = spans[0].offset;
  largest_gap = 0;
  for (const PlacedSpan& s : spans) {
    times |= times_of(s, num_nodes);
    most_first = std::max(most_first, s.first);
    least_last = std::min(least_last, s.last);
    largest_gap = std::max(largest_gap, s.offset - end);
    end = std::max(end, s.offset + s.bytes);
  }
}

int64_t LowestGap::next_free(const Row& row, const PlacedSpan& s, int64_t at, Cursor* cursor) {
  const uint64_t times = times_of(s, num_nodes_);
  for (; cursor->block < row.size(); ++cursor->block, cursor->span = 0) {
    const Block& b = row[cursor->block];
    ++num_visits_;
    if ((b.times & times) == 0) continue;
    if (cursor->span == 0) {
      if (b.begin >= at + s.bytes) return at;  // all later blocks begin even higher
      if (b.is_alive(s) && b.largest_gap < s.bytes) {
        at = std::max(at, b.end);
        continue;
      }
    }
    for (; cursor->span < b.spans.size(); ++cursor->span) {
      const PlacedSpan& other = b.spans[cursor->span];
      ++num_visits_;
      if (other.last < s.first || other.first > s.last) continue;
      if (other.offset >= at + s.bytes) return at;
      at = std::max(at, other.offset + other.bytes);
    }
  }
  return at;
}

int64_t LowestGap::find(const PlacedSpan& s) {
  cursors_.assign(rows_.size(), {});
  int64_t at = 0;
  for (bool has_moved = true; has_moved;) {
    has_moved = false;
    for (size_t i = 0; i < rows_.size(); ++i) {
      const int64_t free = next_free(rows_[i], s, at, &cursors_[i]);
      has_moved = has_moved || free > at;
      at = free;
    }
  }
  return at;
}

void LowestGap::add(const PlacedSpan& s) {
  const auto index = static_cast<size_t>(std::bit_width(static_cast<unsigned>(s.last - s.first)));
  if (rows_.size() <= index) rows_.resize(index + 1);
  Row& row = rows_[index];
  // The last block that begins at or below s, or the first one.
  auto block = std::upper_bound(row.begin(), row.end(), s.offset,
                                [](int64_t at, const Block& b) { return at < b.begin; });
  if (row.empty()) {
    block = row.emplace(block);
  } else if (block != row.begin()) {
    --block;
  }
  auto& spans = block->spans;
  spans.insert(std::upper_bound(
                   spans.begin(), spans.end(), s,
                   [](const PlacedSpan& a, const PlacedSpan& b) { return a.offset < b.offset; }),
               s);
  if (spans.size() > kMostSpans) {
    Block upper;
    const auto middle = spans.begin() + kMostSpans / 2;
    upper.spans.assign(middle, spans.end());
    spans.erase(middle, spans.end());
    upper.summarize(num_nodes_);
    block = row.insert(block + 1, std::move(upper)) - 1;
  }
  block->summarize(num_nodes_);
}

}  // namespace weft
