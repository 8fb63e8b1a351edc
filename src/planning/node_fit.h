// planning/node_fit.h: whether an elastic run fits with another number of nodes
// (docs/design/0022-elastic.md).
#pragma once

#include "config/run_config.h"
#include "launch/layout_choice.h"

namespace weft {

struct NodeFitOptions {
  bool needs_async = false;  // checkpoint.async was asked for
  bool is_forced = false;    // a shortage is a warning
};

// On this machine, when no rank runs. Where only copies of the state do not fit, ranks get the
// arguments to do without.
LayoutFit fit_nodes(const RunConfig& config, int64_t nodes, const NodeFitOptions& options);

}  // namespace weft
