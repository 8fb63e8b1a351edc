// graph/ops/sgd.cpp: as every update.
#include "graph/ops/sgd.h"

namespace weft {

constinit const OpRule kSgdOp = update_rule("sgd");

}  // namespace weft
