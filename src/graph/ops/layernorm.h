// graph/ops/layernorm.h: layer norm, fused with the residual sum before it.
//
// layernorm: x, weight, [bias], [residual] -> [sum], y, mean, rstd. layernorm_apply: sum, weight,
// mean, rstd, [bias] -> y, recomputed. layernorm_grad: dy, sum, weight, mean, rstd, [dsum] -> dx,
// [dweight], [dbias]; a gradient that is not needed is omitted from its outputs.
#pragma once

#include "graph/builder.h"
#include "graph/op_rule.h"
#include "graph/ops/rmsnorm.h"  // Normed

namespace weft {

struct LayerNormAttr {
  float eps = 0;
  bool has_bias = false, has_residual = false;
  // For the gradient: the sum has other uses too; which parameters are not frozen.
  bool has_dsum = false, has_dweight = false, has_dbias = false;
};
extern const OpRule kLayerNormOp, kLayerNormApplyOp, kLayerNormGradOp;

namespace ops {
// sum = x + residual (residual absent: sum is x itself), y its norm times weight plus bias (which
// may be absent).
Normed layernorm(Builder& g, Ref x, Ref residual, Ref weight, Ref bias, float eps);
}  // namespace ops
}  // namespace weft
