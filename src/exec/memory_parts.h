// exec/memory_parts.h: what the bytes of an arena hold, for reports.
#pragma once

#include <set>

#include "exec/plan.h"

namespace weft {

// The parts add up to the arena to the byte. Values of the step region share bytes. The most that
// they take at one node, scratch left out, is told in this order: the gradients that wait there for
// the optimizer (one pass a step); the most bytes that values made for collectives alone take at
// one moment (gathered buckets, whole gradients that are cut at once, addends of a sum over ranks,
// leaves on their way); the rest is activations.
struct MemoryParts {
  int64_t parameters = 0, gradients = 0, states = 0, activations = 0, communication = 0;
  // Inputs, tables, results; and of the step region what its values do not take at once: scratch
  // that found no room among them, gaps, what evaluation needs beyond training.
  int64_t other = 0;

  int64_t total() const {
    return parameters + gradients + states + activations + communication + other;
  }
  bool operator==(const MemoryParts&) const = default;
};

// arena: the layout that `train` and others were added to.
MemoryParts memory_parts(const Plan& train, const ArenaLayout& arena);

// Values (their numbers) of the step region that exist for collectives alone.
std::set<int> communication_values(const Plan& plan);

}  // namespace weft
