// graph/ops/grad_norm.h: squares of every gradient, then norm and clip factor of all.
#pragma once

#include "graph/op_rule.h"

namespace weft {

struct NormAttr {
  bool sum_tensor = false, sum_data = false;  // mesh axes over which the squares are summed
  bool clips = true;  // false: the scale does not depend on the norm (StepScalars::clip_norm is 0)
};
// squares: gradient -> partial sums. norm: partial sums of all -> norm, scale, [loss scale].
extern const OpRule kSquaresOp, kNormOp;

}  // namespace weft
