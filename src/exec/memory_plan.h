// exec/memory_plan.h: where every value lies, before any memory is taken.
//
// Two regions. Persistent values (parameters, states, inputs, results, and gradients that several
// passes add to) have places of their own. Step values share one region: two of them overlap in
// memory only if no node reads or writes both lives. With one pass a step the gradients are step
// values too, and take the room of activations that the backward pass has finished with. A node's
// scratch is a step value that lives in that node alone.
#pragma once

#include <cstdint>
#include <vector>

#include "exec/schedule.h"
#include "graph/graph.h"

namespace weft {

inline constexpr int64_t kAlignment = 64;
inline int64_t align_up(int64_t bytes) {
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

struct Place {
  enum class Region { kNone, kPersistent, kStep } region = Region::kNone;
  int64_t offset = 0;
  int64_t bytes = 0;
  int first = 0, last = 0;  // of step values: the nodes (pass, then finish) between which it lives
};

struct MemoryPlan {
  std::vector<Place> places;   // by value
  std::vector<Place> scratch;  // by node (pass, then finish); of kNone where it needs none
  int64_t persistent_bytes = 0;
  int64_t step_bytes = 0;
  int64_t most_live_bytes = 0;  // of step values at one node, scratch left out
};

// Lifetimes are taken over both lanes: what a node beside touches lives until it is surely done.
// scratch_bytes: by node (pass, then finish); none of a node beside.
MemoryPlan plan_memory(const Graph& graph, int num_passes, const Schedule& pass,
                       const Schedule& finish, const std::vector<int64_t>& scratch_bytes);
// With the usual schedule and without scratch.
MemoryPlan plan_memory(const Graph& graph, int num_passes);

}  // namespace weft
