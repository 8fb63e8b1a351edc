// graph/ops/dropout.h: dropout of an activation, drawn by logical positions (kernel/dropout.h).
#pragma once

#include "graph/builder.h"
#include "graph/op_rule.h"
#include "graph/ops/attention.h"

namespace weft {

// dropout: x, rows -> y = x * mask / (1 - rate). rows (B, 2), int64: every row's epoch and its
// index in the epoch. Its gradient is the same operation: the mask is redrawn, not stored.
struct DropoutAttr {
  double rate = 0;
  uint64_t seed = 0;
  int64_t site = 0;          // which dropout of the model; numbered separately from attention's
  int64_t first_column = 0;  // of the logical tensor, the first of this rank
};
extern const OpRule kDropoutOp;

namespace ops {
// x (B, T, C); of packed rows as attention's: row and position are those of the packed row. A rate
// of 0 returns x itself.
Ref dropout(Builder& g, Ref x, const DropoutRule& dropout);
}  // namespace ops
}  // namespace weft
