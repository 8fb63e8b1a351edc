// exec/schedule.h: two lanes: computation, and communication beside it.
//
// A list is issued in order by the compute thread. A collective marked `beside` is handed to the
// communication thread, which runs them in order; so it starts after everything before it in the
// list, and a node that needs its result waits for it. Few are in flight: issuing one more waits
// for the one kInFlight before it, so that the memory of those done can be used again. On a GPU the
// two threads are two queues (exec/device_lane.h).
#pragma once

#include <vector>

#include "graph/graph.h"

namespace weft {

inline constexpr int kInFlight = 2;

struct ScheduledNode {
  bool is_async = false;
  int number = -1;   // of a node beside: its place among them
  int wait_for = 0;  // before this node starts, so many nodes beside must be done
};

struct Schedule {
  std::vector<ScheduledNode> nodes;
  int num_async = 0;
  // The node at (before) which the k-th node beside is surely done: nodes.size() for the end.
  std::vector<int> done_at;
};

Schedule make_schedule(const Graph& graph, const std::vector<Node>& list);

}  // namespace weft
