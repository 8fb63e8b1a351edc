// train/copies.h: what several ranks hold must have the same bits on all of them.
#pragma once

#include "train/ranks.h"
#include "train/weights.h"

namespace weft {

// Compares parameters, masters and states of which ranks hold the same portion: whole tensors on
// the data axis, tensors that are not cut on the tensor axis, key/value heads that stand on several
// ranks. BugError naming step, tensor and ranks where bits differ.
void compare_copies(Ranks& ranks, const Weights& weights, int64_t step);

}  // namespace weft
