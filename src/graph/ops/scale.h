// graph/ops/scale.h: a value times a constant.
#pragma once

#include "graph/builder.h"
#include "graph/op_rule.h"

namespace weft {

// scale: x -> x * factor, in place where x has no other reader. Its gradient is the same operation.
struct ScaleAttr {
  float factor = 1;
};
extern const OpRule kScaleOp;

namespace ops {
Ref scale(Builder& g, Ref x, float factor);  // of any shape
}
}  // namespace weft
