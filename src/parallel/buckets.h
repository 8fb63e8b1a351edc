// parallel/buckets.h: parameters that are gathered and reduced together.
//
// The parameters that a layer is the first to use form one bucket, each padded to 256 elements (a
// cell of the gradient norm), and the bucket is cut evenly over dp: one call moves a layer, and no
// cell lies on two ranks. Copies that only some neighbours share have buckets of their own, so that
// all who hold them cut them at the same places.
#pragma once

#include <utility>
#include <vector>

#include "graph/graph.h"

namespace weft {

struct Bucket {
  int layer = -1;
  bool is_frozen = false;
  std::vector<Ref> parameters, gradients;  // gradients: absent where frozen or evaluating
  std::vector<int64_t> offsets;            // of the parameters, in elements
  int64_t elements = 0;                    // a multiple of 256 dp
  Ref params, grads;                       // the bucket values
  Ref param_shard, grad_shard;             // what this rank owns; absent: the whole bucket
  Ref grad_sums;                           // shards of gradients gathered again; mostly absent
};

// In order of first use.
std::vector<Bucket> make_buckets(const Graph& graph, int dp);

// The part of parameter i that lies in a rank's shard, in elements of the parameter.
std::pair<int64_t, int64_t> owned_range(const Graph& graph, const Bucket& bucket, size_t i, int dp,
                                        int rank);

}  // namespace weft
