// graph/autodiff.h: appends the backward nodes of a traced forward graph.
#pragma once

#include "graph/graph.h"

namespace weft {

// `losses` is what an operation of losses gave. Its node is replaced by the one that computes
// losses and their gradient together; then one gradient value a parameter that is not frozen, the
// sum of its uses. Adds the sum of the losses as the result "loss_sum" (fp64, summed over the
// passes of a step).
void add_backward(Graph* graph, Ref losses, Dtype grad_dtype);

// Only the result "loss_sum", for evaluation.
void add_loss_sum(Graph* graph, Ref losses);

}  // namespace weft
