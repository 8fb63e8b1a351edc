// exec/wire_item.h: bytes that collectives move, by operation and axis.
#pragma once

#include <vector>

#include "comm/comm.h"
#include "graph/graph.h"

namespace weft {

// Calls of one operation on one axis, and the bytes that this rank passes to the group, counted as
// in Comm::count.
struct WireItem {
  CommOp op;
  Axis axis;
  int ranks = 1;  // of the group: the whole axis, or neighbours that hold copies
  int64_t calls = 0, bytes = 0;
};

// Adds to the item of the same operation, axis and ranks.
void add_wire(std::vector<WireItem>* wire, const WireItem& item);

}  // namespace weft
