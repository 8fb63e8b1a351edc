// planning/snapshot_bytes.h: the copies of the state from which checkpoints are written.
#pragma once

#include "config/run_config.h"
#include "graph/graph.h"
#include "model/model.h"

namespace weft {

// How many copies of its state a rank keeps: one, where checkpoints are written beside training,
// and two more, where a run of several ranks survives the death of one (launch.snapshot_every).
int64_t num_state_copies(const RunConfig& config);
// Whether those are slots.
bool has_snapshot_slots(const RunConfig& config);

// Of one rank: what it writes into a checkpoint (train/weights.h), without the file's header.
int64_t snapshot_bytes(const Graph& graph, bool has_masters);
// Of all ranks together: each element is in one of them.
int64_t snapshot_bytes(const RunConfig& config, const Model& model);

// A lower bound of the largest arena, known without a plan: a rank's weights, masters, states, and
// in fast mode the gradients that several passes add to.
int64_t least_arena(const RunConfig& config, const Model& model);

}  // namespace weft
