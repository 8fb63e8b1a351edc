// graph/ops/attention.h: causal attention over packed q, k and v, and its gradient.
//
// attention: qkv, lengths, [positions], [rows] -> out, lse. attention_grad: qkv, lengths, out,
// dout, lse, [positions], [rows] -> dqkv. rows: of dropout, the last input.
#pragma once

#include "graph/builder.h"
#include "graph/head_shape.h"
#include "graph/op_rule.h"

namespace weft {

struct AttentionAttr {
  HeadShape heads;
  float scale = 0;
  bool padding_attends = false;  // positions past the length, too
  int64_t longest = 0;  // tokens of the longest row that the plan's memory is for; 0: this one's
  double dropout = 0;   // > 0: the last input has the rows' numbers (B, 2), int64
  uint64_t dropout_seed = 0;
  int64_t dropout_site = 0;
  int64_t first_head = 0;  // of the model's heads, the first of this rank
};
extern const OpRule kAttentionOp, kAttentionGradOp;

// Of attention's probabilities; rows (B, 2): every row's epoch and its number in the epoch.
struct DropoutRule {
  double rate = 0;
  uint64_t seed = 0;
  int64_t site = 0;
  Ref rows = {};
};

namespace ops {
// positions (B, T), from 0 in each segment: of packed rows; absent: a row is one segment.
Ref attention(Builder& g, Ref qkv, Ref lengths, Ref positions, HeadShape h,
              bool padding_attends = false, const DropoutRule& dropout = {});
}  // namespace ops
}  // namespace weft
