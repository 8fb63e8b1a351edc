// data/pack.cpp: best fit decreasing, with the open rows ordered by the room they have.
#include "data/pack.h"

#include <algorithm>
#include <map>

#include "base/error.h"

namespace weft {

std::vector<PackedRow> pack_rows(const std::vector<int64_t>& lengths, int64_t capacity) {
  ensure(capacity > 0, "a packed row has room");
  std::vector<Segment> pieces;
  for (size_t row = 0; row < lengths.size(); ++row) {
    for (int64_t at = 0; at < lengths[row]; at += capacity) {
      pieces.push_back({static_cast<int64_t>(row), at, std::min(capacity, lengths[row] - at)});
    }
  }
  std::stable_sort(pieces.begin(), pieces.end(),
                   [](const Segment& a, const Segment& b) { return a.length > b.length; });
  std::vector<PackedRow> packed;
  std::multimap<int64_t, size_t> open;  // room left, to the packed row
  for (const Segment& piece : pieces) {
    const auto best = open.lower_bound(piece.length);
    size_t at = packed.size();
    int64_t room = capacity;
    if (best == open.end()) {
      packed.emplace_back();
    } else {
      at = best->second;
      room = best->first;
      open.erase(best);
    }
    packed[at].push_back(piece);
    if (room > piece.length) open.emplace(room - piece.length, at);
  }
  const auto before = [](const Segment& a, const Segment& b) {
    return a.row != b.row ? a.row < b.row : a.begin < b.begin;
  };
  for (PackedRow& row : packed) std::sort(row.begin(), row.end(), before);
  std::sort(packed.begin(), packed.end(), [&before](const PackedRow& a, const PackedRow& b) {
    return before(a.front(), b.front());
  });
  return packed;
}

}  // namespace weft
