// graph/ops/head.h: the language-model head, fused with cross entropy; the logits never exist as a
// whole.
//
// head_loss: x, weight pieces, targets -> losses. head_loss_grad: the same, [loss scale] -> losses,
// [dx], [dweight pieces]. head_logits: x, weight pieces, last -> logits.
#pragma once

#include "graph/builder.h"
#include "graph/op_rule.h"

namespace weft {

struct HeadAttr {
  int64_t chunk_rows = 0;  // tokens whose logits exist at one time
  int parts = 1;           // pieces of the weight
  int leaves = 0;          // exact mode: pieces are leaves of the contraction too
};
extern const OpRule kHeadLossOp, kHeadLossGradOp, kHeadLogitsOp;

namespace ops {
// Loss of every token (B, T) fp32, 0 where the target is negative.
Ref head_loss(Builder& g, Ref x, Ref weight, Ref targets, int64_t chunk_rows);
// The logits (B, V) fp32 of position last[b] of each row.
Ref head_logits(Builder& g, Ref x, Ref weight, Ref last);
}  // namespace ops
}  // namespace weft
