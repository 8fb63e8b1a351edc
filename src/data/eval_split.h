// data/eval_split.h: the rows that data.eval_fraction selects.
#pragma once

#include <cstdint>

#include "data/order.h"

namespace weft {

// Of n rows (after data.fraction and data.limit) round(fraction x n) are selected, by seed and row
// number alone. Earlier versions drew for each row on its own; a run that began so keeps that rule
// (`by_row`), since it would otherwise be evaluated on rows that it was trained on.
class EvalSplit {
 public:
  EvalSplit(uint64_t seed, int64_t num_rows, double fraction, bool by_row);
  bool contains(int64_t row) const;

 private:
  uint64_t seed_;
  double fraction_;
  bool by_row_;
  uint64_t num_selected_;
  Permutation places_;
};

}  // namespace weft
