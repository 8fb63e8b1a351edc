// planning/node_fit.h: whether an elastic run fits with another number of nodes
// (docs/design/0022-elastic.md).
#pragma once

#include "config/run_config.h"
#include "launch/layout_choice.h"
#include "planning/memory_check.h"

namespace weft {

struct NodeFitOptions {
  bool needs_snapshots = false;  // launch.snapshot_every was given as a number
  bool needs_async = false;      // checkpoint.async was asked for
  bool is_forced = false;        // a shortage is a warning
  std::function<MemoryBounds()> measure = bounds_of_machine;
};

// On this machine, when no rank runs. Where only copies of the state do not fit that nobody has
// asked for, ranks get the arguments to do without.
LayoutFit fit_nodes(const RunConfig& config, int64_t nodes, const NodeFitOptions& options);

}  // namespace weft
