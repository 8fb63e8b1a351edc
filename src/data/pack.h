// data/pack.h: rows put together, so that little of a sequence is padding.
//
// Best fit decreasing: pieces go, the longest first, where the least room is left that holds them.
// A row longer than a sequence is split into pieces; no token is lost.
#pragma once

#include <cstdint>
#include <vector>

namespace weft {

struct Segment {
  int64_t row;    // index into the lengths given
  int64_t begin;  // first token of the row that is in it
  int64_t length;
};
using PackedRow = std::vector<Segment>;

// Each packed row holds at most `capacity` tokens; segments stand in the order of their rows,
// packed rows in that of their first segments. Lengths of 0 are left out.
std::vector<PackedRow> pack_rows(const std::vector<int64_t>& lengths, int64_t capacity);

}  // namespace weft
