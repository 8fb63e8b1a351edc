// exec/device_limits.h: what a GPU's kernels do not take is refused before a run takes anything.
#pragma once

#include "graph/graph.h"

namespace weft {

// UserError with the number, the most and what to do. (Head dims are the model's to refuse: no back
// end has those above kMostHeadDim.)
void check_device_limits(const Graph& graph);

}  // namespace weft
