// exec/loss_sums.cpp: exact sums do not depend on order.
#include "exec/loss_sums.h"

namespace weft {

void LossSums::add(const LossSums& more) {
  loss.add(more.loss);
  loss.normalize();
  target_tokens += more.target_tokens;
  tokens += more.tokens;
  positions += more.positions;
}

}  // namespace weft
