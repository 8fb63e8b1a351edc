// graph/ops/adamw.h: AdamW's update of one parameter.
#pragma once

#include "graph/update_rule.h"

namespace weft {

extern const OpRule kAdamwOp;  // parameter, gradient, scale, m, v, [master] ->

}  // namespace weft
