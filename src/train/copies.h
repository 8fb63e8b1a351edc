// train/copies.h: checks that replicated tensors have the same bits on all ranks.
#pragma once

#include "train/ranks.h"
#include "train/weights.h"

namespace weft {

// Compares parameters, masters and states of which several ranks hold the same portion: whole
// tensors on the data axis, uncut tensors on the tensor axis, key/value heads on several ranks.
// BugError naming step, tensor and ranks where bits differ.
void compare_copies(Ranks& ranks, const Weights& weights, int64_t step);

}  // namespace weft
