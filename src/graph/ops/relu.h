// graph/ops/relu.h: the positive part of every element.
#pragma once

#include "graph/builder.h"
#include "graph/op_rule.h"

namespace weft {

// relu: x -> y. relu_grad: dy, y -> dx.
extern const OpRule kReluOp, kReluGradOp;

namespace ops {
Ref relu(Builder& g, Ref x);  // of x's shape
}
}  // namespace weft
