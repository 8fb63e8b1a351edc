// exec/dump.h: a plan as text: what is kept, and one line per node of the step.
#pragma once

#include <string>
#include <vector>

#include "exec/plan.h"

namespace weft {

// A legend, the values that outlive a step, then one line per node: number, operation, layer, what
// it writes and where, what it reads, bytes written, lane. docs/plan.md explains one.
std::string dump_plan(const Plan& plan);

// By value: its name, or name~2 for the second value of that name, and so on.
std::vector<std::string> unique_names(const Graph& graph);

// What a node updates in place, and what it only reads: an update's parameter, states and master
// weights are its inputs, and it has no outputs.
struct NodeReads {
  std::vector<Ref> updated, read;
};
NodeReads reads_of(const Node& node);

}  // namespace weft
