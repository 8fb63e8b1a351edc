// exec/memory_plan.h: the place of every value, before any memory is allocated.
//
// Two regions. Persistent values (parameters, states, inputs, results, and gradients that several
// passes add to) have their own places. Step values share one region: two of them overlap in memory
// only if their lifetimes do not overlap. With one pass per step the gradients are step values too,
// and reuse the memory of activations that the backward pass no longer needs. A node's scratch is a
// step value that lives only in that node.
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
  std::vector<Place> scratch;  // by node (pass, then finish); kNone where it needs none
  int64_t persistent_bytes = 0;
  int64_t step_bytes = 0;
  int64_t most_live_bytes = 0;  // of step values at one node, without scratch
};

// Lifetimes span both lanes: what an async node touches lives until it is certainly done.
// scratch_bytes: by node (pass, then finish); none for an async node.
MemoryPlan plan_memory(const Graph& graph, int num_passes, const Schedule& pass,
                       const Schedule& finish, const std::vector<int64_t>& scratch_bytes);
// With the usual schedule and without scratch.
MemoryPlan plan_memory(const Graph& graph, int num_passes);

}  // namespace weft
