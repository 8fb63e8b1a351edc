// parallel/buckets.h: parameters that are gathered and reduced together.
//
// The parameters that a layer is the first to use form one bucket, each padded to 256 elements (a
// cell of the gradient norm), and the bucket is cut evenly over dp: one call moves a layer, and no
// cell spans two ranks. Copies that only some neighbours share have separate buckets, so that all
// holders cut them in the same places; so do parameters that several layers read, or every layer
// would gather the first one's bucket.
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "graph/graph.h"

namespace weft {

struct Bucket {
  int index = 0;  // in the names of its values
  int layer = -1;
  bool is_frozen = false;
  bool spans_layers = false;               // several read it
  std::vector<Ref> parameters, gradients;  // gradients: absent where frozen or evaluating
  std::vector<int64_t> offsets;            // of the parameters, in elements
  int64_t elements = 0;                    // a multiple of 256 dp
  Ref params, grads;                       // the bucket values
  Ref param_shard, grad_shard;             // what this rank owns; absent: the whole bucket
  Ref grad_sums;                           // gathered gradient shards; usually absent
};

// In order of first use.
std::vector<Bucket> make_buckets(const Graph& graph, int dp);

// The places of a graph's parameters in its buckets, by name: for other graphs of the same model,
// which read some of them in the same memory.
struct BucketPlaces {
  struct Place {
    size_t bucket;
    int64_t offset;
  };
  struct Extent {
    int64_t elements;
    bool spans_layers;
  };
  std::map<std::string, Place> parameters;
  std::vector<Extent> buckets;
};
BucketPlaces places_of(const Graph& graph, const std::vector<Bucket>& buckets);

// The buckets of `places` that the graph reads, with those of their parameters that it reads.
std::vector<Bucket> find_buckets(const Graph& graph, const BucketPlaces& places);

// The part of parameter i that is in a rank's shard, in elements of the parameter.
std::pair<int64_t, int64_t> owned_range(const Graph& graph, const Bucket& bucket, size_t i, int dp,
                                        int rank);

}  // namespace weft
