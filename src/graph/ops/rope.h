// graph/ops/rope.h: rotary position embedding of q and k.
#pragma once

#include "graph/builder.h"
#include "graph/head_shape.h"
#include "graph/op_rule.h"

namespace weft {

// qkv, cosine, sine, [positions] -> qkv rotated. The inverse, its gradient, rotates back.
struct RopeAttr {
  HeadShape heads;
};
extern const OpRule kRopeOp, kRopeInverseOp;

namespace ops {
Ref rope(Builder& g, Ref qkv, Ref cosine, Ref sine, Ref positions, HeadShape h);
}
}  // namespace weft
