// graph/ops/adamw.h: AdamW's update of one parameter.
#pragma once

#include "graph/op_rule.h"

namespace weft {

struct AdamwAttr {
  bool decay = true;
};
extern const OpRule kAdamwOp;  // parameter, gradient, scale, m, v, [master] ->

}  // namespace weft
