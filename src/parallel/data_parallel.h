// parallel/data_parallel.h: the graph of one replica -> that of one rank of the data-parallel axis.
//
//            parameters   gradients         states   collectives of a step (one call per bucket)
//   none     whole        whole             whole    all_reduce
//   zero1    whole        whole             shard    reduce_scatter, all_gather after the update
//   zero2    whole        shard             shard    reduce_scatter every pass, all_gather
//   zero3    shard        shard             shard    the same, and parameters gathered before use
//
// In exact mode a pass is one leaf (exact_rows rows), and its gradients are added in a fixed order:
// leaves of a group one after the other, the groups in a binary tree. The tree is built as a
// counter is: the sum of group q goes into accumulator popcount(q), and for every trailing one of q
// the accumulator below absorbs the one above. A rank that owns whole groups needs log2 of their
// number plus one accumulators, one less where a group is a single leaf; the last log2(dp) levels
// of the tree are the collective's. Where gradients are cut after every pass (zero2, zero3), the
// ranks work on neighbouring leaves, and the owner of a shard adds the leaves that arrive in their
// order: the same sums, computed elsewhere. The same holds for every strategy where dp does not
// divide the number of groups (dp 3): no rank owns whole groups then, and none and zero1 also cut
// their gradients after every pass; for none the sums are gathered after the last one.
#pragma once

#include "parallel/buckets.h"

namespace weft {

enum class Shard { kNone, kZero1, kZero2, kZero3 };

struct DataParallel {
  int dp = 1, rank = 0;
  Shard shard = Shard::kNone;
  int num_passes = 1;
  bool is_exact = false;
  int64_t groups = 1;  // exact: equal groups of the leaves of a global batch

  bool needs_pass() const { return dp > 1 || is_exact; }
  bool owns_groups() const { return groups % dp == 0; }
  // Whether pass p works on leaves p dp ... p dp + dp - 1 (else a rank's leaves are neighbours).
  bool is_pass_major() const {
    return is_exact && (!owns_groups() || (shard >= Shard::kZero2 && num_passes > 1));
  }
};

// Before the optimizer. Replaces graph->updates by what this rank updates.
std::vector<Bucket> apply_data_parallel(Graph* graph, const DataParallel& mesh);
// Of a graph without gradients, whose parameters are in the buckets of another.
void apply_data_parallel(Graph* graph, const DataParallel& mesh, const BucketPlaces& places);

// After the optimizer: updated shards become whole parameters again (zero1, zero2).
void add_parameter_gathers(Graph* graph, const std::vector<Bucket>& buckets,
                           const DataParallel& mesh);

}  // namespace weft
