// graph/ops/collectives.h: communication between ranks, inserted by passes.
#pragma once

#include "graph/op_rule.h"

namespace weft {

struct CollectiveAttr {
  Axis axis = Axis::kTensor;
  int copies = 0;         // all_reduce over the tensor axis: only over this many neighbours
  int copy_group = 0;     // of the two groups of such neighbours that a rank may belong to
  bool has_bias = false;  // all_reduce: the second input is added to the sum
};
// all_reduce: over a mesh axis; a bias may follow the sum, and a rounding. The others are over the
// data-parallel axis. reduce_scatter: this rank's shard of the sum. all_gather: shards -> the whole
// bucket. all_to_all: leaves of a bucket to the owners of its shards.
extern const OpRule kAllReduceOp, kReduceScatterOp, kAllGatherOp, kAllToAllOp;
// A leaf added to the accumulators of its gradient (exact mode); on one rank.
extern const OpRule kAccumulateOp;

// A collective over the data-parallel axis on the communication lane.
Node data_collective(Op op, std::vector<Ref> inputs, std::vector<Ref> outputs, int layer);

}  // namespace weft
