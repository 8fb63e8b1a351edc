// graph/ops/add.h: the sum of two values of one shape.
#pragma once

#include "graph/op_rule.h"

namespace weft {

extern const OpRule kAddOp;

}  // namespace weft
