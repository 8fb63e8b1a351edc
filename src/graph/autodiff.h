// graph/autodiff.h: appends the backward nodes of a traced forward graph.
#pragma once

#include "graph/graph.h"

namespace weft {

// `losses` is the output of a loss operation. Its node is replaced by the one that computes losses
// and their gradient together; then one gradient value per unfrozen parameter, the sum over its
// uses. Adds the sum of the losses as the result "loss_sum" (fp64, summed over the passes of a
// step).
void add_backward(Graph* graph, Ref losses, Dtype grad_dtype);

// Only the result "loss_sum", for evaluation.
void add_loss_sum(Graph* graph, Ref losses);

}  // namespace weft
