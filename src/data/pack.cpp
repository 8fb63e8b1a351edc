// data/pack.cpp: best fit decreasing, with the open rows ordered by free space.
#include "data/pack.h"

#include <algorithm>
#include <map>

#include "base/error.h"

namespace weft {
namespace {

// The shares of both capacities, as whole numbers of their product.
int64_t size_of(PairLength length, PairLength capacity) {
  return length.source * std::max<int64_t>(capacity.target, 1) +
         length.target * std::max<int64_t>(capacity.source, 1);
}

PairLength length_of(const Segment& piece) { return {piece.source_length, piece.length}; }

bool is_before(const Segment& a, const Segment& b) {
  return a.row != b.row ? a.row < b.row : a.begin < b.begin;
}

void sort_by_first(std::vector<PackedRow>* packed) {
  std::sort(packed->begin(), packed->end(),
            [](const PackedRow& a, const PackedRow& b) { return is_before(a.front(), b.front()); });
}

// With one capacity the first open row that is large enough holds the piece; with two it may have
// space on the wrong side, and the next one is tried.
std::vector<PackedRow> best_fit(std::vector<Segment> pieces, PairLength capacity) {
  std::stable_sort(pieces.begin(), pieces.end(), [capacity](const Segment& a, const Segment& b) {
    return size_of(length_of(a), capacity) > size_of(length_of(b), capacity);
  });
  struct Open {
    size_t row;
    PairLength room;
  };
  std::vector<PackedRow> packed;
  std::multimap<int64_t, Open> open;  // by free space
  for (const Segment& piece : pieces) {
    const PairLength length = length_of(piece);
    auto best = open.lower_bound(size_of(length, capacity));
    while (best != open.end() &&
           (best->second.room.source < length.source || best->second.room.target < length.target)) {
      ++best;
    }
    Open row{packed.size(), capacity};
    if (best == open.end()) {
      packed.emplace_back();
    } else {
      row = best->second;
      open.erase(best);
    }
    packed[row.row].push_back(piece);
    row.room = {row.room.source - length.source, row.room.target - length.target};
    if (const int64_t room = size_of(row.room, capacity); room > 0) open.emplace(room, row);
  }
  for (PackedRow& row : packed) std::sort(row.begin(), row.end(), is_before);
  sort_by_first(&packed);
  return packed;
}

}  // namespace

std::vector<PackedRow> pack_rows(const std::vector<int64_t>& lengths, int64_t capacity) {
  ensure(capacity > 0, "a packed row needs capacity");
  std::vector<Segment> pieces;
  for (size_t row = 0; row < lengths.size(); ++row) {
    for (int64_t at = 0; at < lengths[row]; at += capacity) {
      pieces.push_back({static_cast<int64_t>(row), at, std::min(capacity, lengths[row] - at)});
    }
  }
  return best_fit(std::move(pieces), {0, capacity});
}

std::vector<PackedRow> pack_pairs(const std::vector<PairLength>& lengths, PairLength capacity) {
  std::vector<Segment> pieces;
  std::vector<PackedRow> alone;
  for (size_t row = 0; row < lengths.size(); ++row) {
    const PairLength& n = lengths[row];
    ensure(n.source <= capacity.source && n.target <= capacity.target,
           "a pair must fit a packed row");
    if (n.source + n.target == 0) continue;
    const Segment pair{static_cast<int64_t>(row), 0, n.target, n.source};
    if (n.source == 0 || n.target == 0) {
      alone.push_back({pair});
    } else {
      pieces.push_back(pair);
    }
  }
  std::vector<PackedRow> packed = best_fit(std::move(pieces), capacity);
  packed.insert(packed.end(), alone.begin(), alone.end());
  sort_by_first(&packed);
  return packed;
}

}  // namespace weft
