// exec/memory_parts.h: what the bytes of an arena hold, for reports.
#pragma once

#include <set>

#include "exec/plan.h"

namespace weft {

// The parts add up to the arena to the byte. Values of the step region share bytes. Their peak at
// one node, without scratch, is reported in this order: the gradients that wait there for the
// optimizer (one pass per step); the peak of values that exist only for collectives (gathered
// buckets, whole gradients that are cut at once, addends of a sum over ranks, leaves in flight);
// the rest is activations.
struct MemoryParts {
  int64_t parameters = 0, gradients = 0, states = 0, activations = 0, communication = 0;
  // Inputs, tables, results; and the part of the step region beyond the values' peak: scratch that
  // did not fit among them, gaps, what evaluation needs beyond training.
  int64_t other = 0;

  int64_t total() const {
    return parameters + gradients + states + activations + communication + other;
  }
  bool operator==(const MemoryParts&) const = default;
};

// arena: the layout that `train` and others were added to.
MemoryParts memory_parts(const Plan& train, const ArenaLayout& arena);

// Values (by number) of the step region that exist only for collectives.
std::set<int> communication_values(const Plan& plan);

}  // namespace weft
