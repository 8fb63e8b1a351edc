// optim/adamw.h: the update as nodes of the finish list.
#pragma once

#include "graph/graph.h"

namespace weft {

struct OptimizerOptions {
  Dtype state_dtype = Dtype::kF32;
  bool master_weights = false;  // fp32 copies that the update reads and writes
  bool decay_all = true;        // false: norms and biases (one dimension) do not decay
  bool sum_tensor = false, sum_data = false;  // mesh axes over which the norm's squares lie
  bool is_sharded = false;                    // every data-parallel rank has states of its own part
  bool scales_loss = false;                   // fp16
};

// Appends, for graph->updates: squares of every gradient, the norm and scale, the updates. Adds
// states name#m, name#v (and name#master), the results "grad_norm" (fp64) and "grad_scale" (fp32).
// scales_loss: also "loss_scale" (tensor/loss_scale.h), which the head's gradient reads and the
// norm keeps.
void add_adamw(Graph* graph, const OptimizerOptions& options);

}  // namespace weft
