// data/pack.h: packs rows into sequences with little padding.
//
// Best fit decreasing: pieces are placed, largest first, where the smallest sufficient space is
// left. A row longer than a sequence is split into pieces; no token is lost. A pair of an
// encoder-decoder model has two lengths and its packed row two capacities, and must fit both: size
// and free space are then sums of the fractions of each.
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

// Each packed row holds at most `capacity` tokens; segments are in the order of their rows, packed
// rows in that of their first segments. Lengths of 0 are skipped.
std::vector<PackedRow> pack_rows(const std::vector<int64_t>& lengths, int64_t capacity);

// Tokens of the encoder and the decoder: of a pair, or the capacity of a packed row.
struct PairLength {
  int64_t source = 0;
  int64_t target = 0;
};

// Pairs are never split: each side fits its capacity. Those without any tokens are skipped. One
// without tokens on one side is alone in its packed row: a model matches the segments of both sides
// by their order.
std::vector<PackedRow> pack_pairs(const std::vector<PairLength>& lengths, PairLength capacity);

}  // namespace weft
