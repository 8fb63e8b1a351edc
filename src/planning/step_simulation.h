// planning/step_simulation.h: the executor's loop (exec/executor.cpp) with clocks instead of calls.
#pragma once

#include <vector>

#include "exec/schedule.h"
#include "planning/node_cost.h"

namespace weft {

struct TimedNode {
  NodeSeconds work;
  // Of collectives, and of nodes that communicate themselves (the head, the norm).
  double communication = 0;
  bool is_async = false;        // on the communication lane
  int wait_for = 0;             // as in ScheduledNode
  bool last_pass_only = false;  // earlier passes post nothing
};

// Seconds of one step, on the lane that computes but for `lane`.
struct StepTimes {
  double products = 0, attention = 0, memory = 0, gaps = 0;
  double in_line = 0;  // collectives on the compute lane: nothing overlaps them
  double waiting = 0;  // for collectives of the other lane, and slowed down by them
  double lane = 0;     // collectives on the other lane, whether overlapped or not
  double step = 0;

  double computing() const { return products + attention + memory + gaps; }
  double exposed() const { return in_line + waiting; }  // communication
  void add(const StepTimes& other);
};

struct LaneRules {
  double gap_s = 0;  // between two nodes of the compute lane
  double share = 0;  // of the device, taken by a collective in flight on the other lane
};

// One run of a list, which begins and ends with nothing in flight. is_last: of the step's passes.
StepTimes simulate_list(const std::vector<TimedNode>& nodes, const LaneRules& rules, bool is_last);

}  // namespace weft
