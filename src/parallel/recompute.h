// parallel/recompute.h: values that are cheaper to compute again than to keep.
#pragma once

#include "graph/graph.h"

namespace weft {

// Outputs of norms and activations are read again only by weight gradients, and cost one sweep
// over memory to repeat with the same bits: the backward part gets nodes that repeat them just
// before their first use there, so that the forward ones die at once.
void recompute_cheap_values(Graph* graph);

}  // namespace weft
