// parallel/stack_parts.h: makes the operands of one product contiguous.
//
// A product with several weights (q, k, v; gate, up) is one library call only where they are
// contiguous. Weights, their biases and their gradients that are not in a bucket yet get their own.
#pragma once

#include "graph/graph.h"

namespace weft {

void stack_parts(Graph* graph);

}  // namespace weft
