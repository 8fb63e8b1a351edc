// comm/nodes/nodes.h: a group of ranks on several nodes: shared memory inside a node, Gloo between.
//
// A group inside a node uses shared memory alone; one with a single rank on each node, or with
// numbers of ranks that are not one power of two, Gloo alone. Otherwise large sums and gathers are
// hierarchical: a node's m ranks add in shared memory, each then goes on with 1/m of the data over
// Gloo, together with those that have the same place on the other nodes. So a byte crosses a node's
// link once instead of m times. The bits are those of a flat group: m = 2^k consecutive ranks are a
// subtree of the tree in comm/comm.h. bf16 and fp16, whose partial sums are fp32, stay flat.
#pragma once

#include <memory>

#include "comm/comm.h"
#include "net/node_place.h"
#include "net/shm_world.h"

namespace weft {

// This rank's handle on the group of all ranks of all nodes; world: of this node, whose ranks
// follow each other from place.first_rank, as many on every node. Collective; waits for all ranks
// without a deadline. UserError where the build lacks Gloo.
std::unique_ptr<Comm> make_nodes_comm(const std::shared_ptr<ShmWorld>& world, int local_rank,
                                      const NodePlace& place);

// For tests: over groups that exist. flat: all ranks; local: those of this node, num_ranks on each.
std::unique_ptr<Comm> make_nodes_comm(std::unique_ptr<Comm> flat, std::unique_ptr<Comm> local);

}  // namespace weft
