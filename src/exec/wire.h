// exec/wire.h: what the collectives of a plan move in one optimizer step.
#pragma once

#include <vector>

#include "exec/plan.h"
#include "exec/wire_item.h"

namespace weft {

// All passes and the finish list: the nodes that are collectives, and those that communicate
// themselves (the head its softmax leaves, the norm its squares). The head is counted as if every
// token had a target; tokens without one are not exchanged.
std::vector<WireItem> wire_of(const Plan& plan);

// Bytes that this rank receives from the others of the group. What a rank passes in is not
// comparable: for an all_gather it is one part, for a reduce_scatter all of them.
int64_t received_bytes(const WireItem& item);

}  // namespace weft
