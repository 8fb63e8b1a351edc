// exec/schedule.h: two lanes: computation, and async communication.
//
// A list is issued in order by the compute thread. A collective marked `async` is posted to the
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
  int number = -1;   // of an async node: its index among them
  int wait_for = 0;  // this many async nodes must be done before this node starts
};

struct Schedule {
  std::vector<ScheduledNode> nodes;
  int num_async = 0;
  // The node before which the k-th async node is certainly done: nodes.size() for the end.
  std::vector<int> done_at;
};

Schedule make_schedule(const Graph& graph, const std::vector<Node>& list);

}  // namespace weft
