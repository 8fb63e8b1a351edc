// optim/adamw.h: the update as nodes of the finish list.
#pragma once

#include "graph/graph.h"

namespace weft {

struct OptimizerOptions {
  Dtype state_dtype = Dtype::kF32;
  bool master_weights = false;  // fp32 copies that the update reads and writes
  bool decay_all = true;        // false: norms and biases (one dimension) do not decay
};

// Appends: squares of every gradient, the norm and scale, one update a parameter. Adds states
// name#m, name#v (and name#master), the results "grad_norm" (fp64) and "grad_scale" (fp32).
void add_adamw(Graph* graph, const OptimizerOptions& options);

}  // namespace weft
