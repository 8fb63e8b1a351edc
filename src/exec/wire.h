// exec/wire.h: what the collectives of a plan move in one optimizer step.
#pragma once

#include <vector>

#include "comm/comm.h"
#include "exec/plan.h"

namespace weft {

// Calls of one operation on one axis, and the bytes that this rank hands to the group, counted as
// Comm::count does.
struct WireItem {
  CommOp op;
  Axis axis;
  int ranks = 1;  // of the group: all of the axis, or neighbours that hold copies
  int64_t calls = 0, bytes = 0;
};

// All passes and the finish list: the nodes that are collectives, and those that make some
// themselves (the head tells its softmax leaves, the norm its squares). The head is counted as if
// every token had a target; tokens without one are not told.
std::vector<WireItem> wire_of(const Plan& plan);

void add_wire(std::vector<WireItem>* wire, const WireItem& item);

// Bytes that reach this rank from the others of the group. What a rank hands over does not
// compare: of an all_gather it is one part, of a reduce_scatter all of them.
int64_t received_bytes(const WireItem& item);

}  // namespace weft
