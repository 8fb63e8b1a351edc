// optim/updates.h: an optimizer's step as nodes of the finish list.
#pragma once

#include "graph/graph.h"
#include "optim/optimizer.h"

namespace weft {

struct UpdateOptions {
  bool master_weights = false;                // fp32 copies that the update reads and writes
  bool sum_tensor = false, sum_data = false;  // mesh axes over which the norm's squares are summed
  bool is_sharded = false;   // every data-parallel rank has the states of its own shard
  bool scales_loss = false;  // fp16
  bool clips = true;         // gradients are scaled by their norm
};

// Appends, for graph->updates: sums of copies, squares of every gradient, the norm and scale, the
// updates. Adds the optimizer's states (and name#master), the results "grad_norm" (fp64) and
// "grad_scale" (fp32). scales_loss: also "loss_scale" (tensor/loss_scale.h), which the head's
// gradient reads and the norm updates.
void add_updates(Graph* graph, const Optimizer& optimizer, const OptimizerConfig& config,
                 const UpdateOptions& options);

}  // namespace weft
