// graph/ops/loss_sum.h: the losses of all tokens, added exactly over the passes of a step.
#pragma once

#include "graph/op_rule.h"

namespace weft {

extern const OpRule kLossSumOp;  // losses -> limbs of an ExactSum

}  // namespace weft
