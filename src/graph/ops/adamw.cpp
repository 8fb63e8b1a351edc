// graph/ops/adamw.cpp: as every update.
#include "graph/ops/adamw.h"

namespace weft {

constinit const OpRule kAdamwOp = update_rule("adamw");

}  // namespace weft
