// parallel/tensor_parallel.h: a logical graph -> the graph of one rank of the tensor-parallel axis.
#pragma once

#include "parallel/pieces.h"

namespace weft {

// Cuts parameters, gradients and the activations that follow from them, and inserts an all_reduce
// where a partial value is read as a whole (graph/placement.h). Works on training graphs (before
// the optimizer) and on forward ones. In exact mode it applies at tp 1 too: contractions over cut
// dims become leaves and a tree, so that every tp has the same bits.
void apply_tensor_parallel(Graph* graph, const Cuts& cuts, const TensorParallel& mesh);

}  // namespace weft
