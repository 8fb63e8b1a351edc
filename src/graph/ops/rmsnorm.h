// graph/ops/rmsnorm.h: RMSNorm, fused with the residual sum before it.
//
// rmsnorm: x, weight, [residual] -> [sum], y, rstd. rmsnorm_apply: sum, weight, rstd -> y,
// recomputed. rmsnorm_grad: dy, sum, weight, rstd, [dsum] -> dx, [dweight].
#pragma once

#include "graph/builder.h"
#include "graph/op_rule.h"

namespace weft {

struct RmsNormAttr {
  float eps = 0;
  bool has_residual = false;
  bool has_dsum = false;  // gradient: the sum has other uses too
  // 1: y is the norm times 1 + weight, rounded once after it (Gemma); 0: the norm is rounded before
  // the weight multiplies it (Llama).
  int weight_offset = 0;
};
extern const OpRule kRmsNormOp, kRmsNormApplyOp, kRmsNormGradOp;

namespace ops {
struct Normed {
  Ref sum, y;
};
// sum = x + residual (residual absent: sum is x itself), y its norm times weight.
Normed rmsnorm(Builder& g, Ref x, Ref residual, Ref weight, float eps, int weight_offset = 0);
}  // namespace ops
}  // namespace weft
