// data/eval_split.h: the rows that data.eval_fraction selects.
#pragma once

#include <cstdint>

#include "data/order.h"

namespace weft {

// Selects round(fraction x n) of n rows (after data.fraction and data.limit), by seed and row
// number only. Earlier versions drew each row independently. A run that began with that rule keeps
// it (`by_row`): the new rule would select evaluation rows that the run was trained on.
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
