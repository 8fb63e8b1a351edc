// launch/placement.h: which nodes take part in a generation, and in what layout
// (docs/design/0022-elastic.md).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace weft {

struct NodeLayout {
  int num_nodes = 1;
  int64_t dp = 1;

  std::string describe() const;  // "dp=2 on 2 nodes"
  bool operator==(const NodeLayout&) const = default;
};

// The largest for at most that many nodes; null: there is none.
const NodeLayout* largest_layout(const std::vector<NodeLayout>& layouts, int num_nodes);

struct PlacedAgent {
  bool is_first = false;  // the supervisor's own
  int node = -1;          // until now; -1: none
};

// The agents' numbers in a generation of num_nodes; -1: it waits as a spare. Number 0 is the first
// agent's alone. Who has a number that still exists keeps it; the gaps go to others that had one,
// in its order, then to those that had none, in theirs. Agents that are too few leave gaps.
std::vector<int> place_agents(const std::vector<PlacedAgent>& agents, int num_nodes);

// Of the hosts that an engine has named, those without an agent. A name may be qualified on one
// side and short on the other; an agent stands for one host.
std::vector<std::string> missing_hosts(std::vector<std::string> named,
                                       const std::vector<std::string>& joined);

}  // namespace weft
