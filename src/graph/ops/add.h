// graph/ops/add.h: the sum of two values of one shape.
#pragma once

#include "graph/builder.h"
#include "graph/op_rule.h"

namespace weft {

// add: a, b -> a + b. Traced by models, and inserted by passes that sum gradients.
extern const OpRule kAddOp;

namespace ops {
Ref add(Builder& g, Ref a, Ref b);  // of any one shape
}
}  // namespace weft
