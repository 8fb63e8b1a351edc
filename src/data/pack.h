// data/pack.h: rows put together, so that little of a sequence is padding.
//
// Best fit decreasing: pieces go, the largest first, where the least room is left that holds them.
// A row longer than a sequence is split into pieces; no token is lost. A pair of an encoder-decoder
// model has two lengths and its packed row two capacities, and both must hold it: size and room are
// then the sums of the shares that are taken of each, and left.
#pragma once

#include <cstdint>
#include <vector>

namespace weft {

struct Segment {
  int64_t row;    // index into the lengths given
  int64_t begin;  // first token of the row that is in it
  int64_t length;
  int64_t source_length = 0;  // of a pair, all of it
};
using PackedRow = std::vector<Segment>;

// Each packed row holds at most `capacity` tokens; segments stand in the order of their rows,
// packed rows in that of their first segments. Lengths of 0 are left out.
std::vector<PackedRow> pack_rows(const std::vector<int64_t>& lengths, int64_t capacity);

// Tokens of the encoder and of the decoder: of a pair, or of a packed row at most.
struct PairLength {
  int64_t source = 0;
  int64_t target = 0;
};

// Pairs are never split: each side fits its capacity. Those of no token at all are left out.
std::vector<PackedRow> pack_pairs(const std::vector<PairLength>& lengths, PairLength capacity);

}  // namespace weft
