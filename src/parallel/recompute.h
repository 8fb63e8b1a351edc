// parallel/recompute.h: recomputes values where that is cheaper than keeping them.
#pragma once

#include "graph/graph.h"

namespace weft {

// Outputs of norms and activations are read again only by weight gradients, and cost one sweep over
// memory to recompute with the same bits: the backward part gets nodes that recompute them just
// before their first use there, so that the forward ones are freed at once.
void recompute_cheap_values(Graph* graph);

}  // namespace weft
