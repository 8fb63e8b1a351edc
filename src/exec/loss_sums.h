// exec/loss_sums.h: the totals of a batch over the rows of all ranks.
#pragma once

#include <cstdint>

#include "base/exact_sum.h"

namespace weft {

struct LossSums {
  ExactSum loss;  // of the tokens
  int64_t target_tokens = 0;
  int64_t tokens = 0, positions = 0;  // without padding and with it

  double mean() const { return loss.value() / static_cast<double>(target_tokens); }
  void add(const LossSums& more);
};
inline constexpr int kLossNumbers = ExactSum::kLimbs + 3;  // summed over ranks

}  // namespace weft
