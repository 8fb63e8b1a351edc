// parallel/stack_parts.h: what one product takes together lies together.
//
// A product with several weights (q, k, v; gate, up) is one call of a library only where they lie
// one behind the other. Weights, their biases and their gradients that have no place in a bucket
// yet get one of their own.
#pragma once

#include "graph/graph.h"

namespace weft {

void stack_parts(Graph* graph);

}  // namespace weft
