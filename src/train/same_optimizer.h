// train/same_optimizer.h: whether a checkpoint has the states that the run's optimizer goes on
// with.
#pragma once

#include "checkpoint/checkpoint.h"
#include "graph/graph.h"
#include "optim/optimizer_config.h"

namespace weft {

// UserError where the checkpoint is of another optimizer, or of one that kept other states (with
// momentum and without it). A checkpoint that does not name its optimizer is known by its states.
void check_same_optimizer(const CheckpointReader& checkpoint, const OptimizerConfig& config,
                          const Graph& graph);

}  // namespace weft
