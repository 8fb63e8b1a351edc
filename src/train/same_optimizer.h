// train/same_optimizer.h: checks that a checkpoint has the states that the run's optimizer needs.
#pragma once

#include "checkpoint/checkpoint.h"
#include "graph/graph.h"
#include "optim/optimizer_config.h"

namespace weft {

// UserError where the checkpoint was written with another optimizer, or with other states (with or
// without momentum). A checkpoint that does not name its optimizer is recognized by its states.
void check_same_optimizer(const CheckpointReader& checkpoint, const OptimizerConfig& config,
                          const Graph& graph);

}  // namespace weft
