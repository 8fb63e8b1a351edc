// train/gradients.h: the gradients of a step as slices of logical tensors, from the last pass to
// the update.
#pragma once

#include <vector>

#include "checkpoint/checkpoint.h"
#include "exec/executor.h"
#include "planning/layout.h"

namespace weft {

struct HeldGradient {
  Slice slice;    // named NAME#grad; before clipping, of the sum of the token losses
  bool is_owned;  // of the ranks that hold these elements, this one reports them
  bool is_whole;  // false: other ranks have copies of the parameter, and the update sums them
};

// What this rank updates, in the order of the updates.
std::vector<HeldGradient> held_gradients(const Executor& executor, const Layout& layout);

// Whether every rank of the tensor axis holds these elements, and the tensor is a vector: a norm.
bool is_replicated_vector(const Slice& slice);

}  // namespace weft
