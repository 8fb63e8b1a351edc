// graph/ops/qk_norm.h: RMSNorm of every head of q and of k, before rope (Qwen3, Gemma 3).
//
// qk_norm: qkv, q_weight, k_weight -> qkv, rstd. qk_norm_grad: dqkv, qkv, q_weight, k_weight, rstd
// -> dqkv, dq_weight per leaf, dk_weight per leaf.
//
// All heads share a weight, so that under tensor parallelism a rank's gradient of it is an addend:
// a model declares the weights as copies on all ranks (shared_by_heads, model/model.h).
#pragma once

#include "graph/builder.h"
#include "graph/head_shape.h"
#include "graph/op_rule.h"

namespace weft {

struct QkNormAttr {
  HeadShape heads;
  float eps = 0;
  int weight_offset = 0;  // as rmsnorm's
  int leaves = 1;         // gradient: groups of heads, each with its own sums (exact mode)
};
extern const OpRule kQkNormOp, kQkNormGradOp;

namespace ops {
// Weights of head_dim elements; v is unchanged.
Ref qk_norm(Builder& g, Ref qkv, Ref q_weight, Ref k_weight, HeadShape h, float eps,
            int weight_offset = 0);
}  // namespace ops
}  // namespace weft
