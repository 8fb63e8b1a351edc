// graph/ops/sgd.h: SGD's update of one parameter.
#pragma once

#include "graph/update_rule.h"

namespace weft {

extern const OpRule kSgdOp;  // parameter, gradient, scale, [momentum], [master] ->

}  // namespace weft
