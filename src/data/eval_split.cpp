// data/eval_split.cpp: selects the rows that come first in a permutation.
#include "data/eval_split.h"

#include <cmath>

#include "base/random.h"

namespace weft {
namespace {

constexpr uint64_t kSplitStream = 0x73706c6974;

uint64_t key_of_split(uint64_t seed) {
  const RandomBlock b = philox(seed, kSplitStream, UINT64_MAX);
  return (uint64_t{b[0]} << 32) | b[1];
}

}  // namespace

EvalSplit::EvalSplit(uint64_t seed, int64_t num_rows, double fraction, bool by_row)
    : seed_(seed),
      fraction_(fraction),
      by_row_(by_row),
      num_selected_(static_cast<uint64_t>(std::llround(static_cast<double>(num_rows) * fraction))),
      places_(static_cast<uint64_t>(num_rows), key_of_split(seed)) {}

bool EvalSplit::contains(int64_t row) const {
  const auto at = static_cast<uint64_t>(row);
  if (by_row_) return uniform_at(seed_, kSplitStream, at) < fraction_;
  return places_(at) < num_selected_;
}

}  // namespace weft
