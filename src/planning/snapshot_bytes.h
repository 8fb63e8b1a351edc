// planning/snapshot_bytes.h: the copies of the state from which checkpoints are written.
#pragma once

#include "config/run_config.h"
#include "graph/graph.h"
#include "model/model.h"

namespace weft {

// Of one rank: what it writes into a checkpoint (train/weights.h), without the file's header.
int64_t snapshot_bytes(const Graph& graph, bool has_masters);
// Of all ranks together: each element is in one of them.
int64_t snapshot_bytes(const RunConfig& config, const Model& model);

}  // namespace weft
