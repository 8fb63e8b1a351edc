// comm/nodes/node_stages.h: which calls of a group over several nodes go in two stages, inside the
// nodes and between them. NodesComm follows it, and so does `weft plan --cluster`.
#pragma once

#include "comm/comm.h"

namespace weft {

// Of a group with per_node consecutive ranks on each of its nodes. Only a power of two of them is
// a subtree of the tree that all sums follow (comm/comm.h).
bool can_have_node_stages(int64_t num_ranks, int64_t per_node);

// Of a call in such a group. bytes: all of an all_reduce, one rank's part of the others.
bool has_node_stages(CommOp op, int64_t bytes, Dtype dtype, Reduce reduce = Reduce::kSum);

}  // namespace weft
