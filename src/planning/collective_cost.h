// planning/collective_cost.h: how long a group of ranks takes for one collective, from the speeds
// of its links (docs/design/0016-cluster-plan.md has the table of algorithms).
#pragma once

#include "exec/wire_item.h"
#include "planning/cluster.h"
#include "planning/layout.h"

namespace weft {

// Ranks fill nodes in their order, so that every node holds as many of a group.
struct GroupPlace {
  int64_t ranks = 1;
  int64_t per_node = 1;  // of the group
  int64_t sharers = 1;   // groups that use a node's link at the same time
  int64_t nodes() const { return ranks / per_node; }
};

// The ranks of a node that a layout uses. UserError where the layout does not fit the cluster.
int64_t ranks_on_a_node(const Layout& layout, const Cluster& cluster);

// The group of rank 0 on an axis; `ranks`: of the whole axis, or neighbours on the tensor axis.
GroupPlace place_group(const Layout& layout, const Cluster& cluster, Axis axis, int64_t ranks);
GroupPlace place_world(const Layout& layout, const Cluster& cluster);

// bytes: what a rank passes in, counted as in Comm::count. dtype: of what is added.
double collective_seconds(const Cluster& cluster, const GroupPlace& group, CommOp op, double bytes,
                          Dtype dtype = Dtype::kF32);

}  // namespace weft
