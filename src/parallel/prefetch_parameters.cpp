// parallel/prefetch_parameters.cpp: the ranges of the pass list in which each bucket is used.
#include "parallel/prefetch_parameters.h"

#include <algorithm>
#include <map>

#include "base/error.h"
#include "graph/ops/collectives.h"

namespace weft {
namespace {

// A gap of fewer nodes than half a layer's keeps the copy: the last layer's backward pass follows
// its forward pass almost at once. What several layers read is kept from the first to the last.
constexpr size_t kKeepNodes = 5;

struct Stretch {
  size_t bucket;
  size_t first, last;  // nodes of the pass list
};

std::vector<Stretch> find_stretches(const Graph& graph, const std::map<int, size_t>& bucket_of,
                                    const std::vector<Bucket>& buckets) {
  std::vector<Stretch> found;
  std::vector<int> open(buckets.size(), -1);
  for (size_t t = 0; t < graph.pass.size(); ++t) {
    for (Ref r : graph.pass[t].inputs) {
      const auto bucket = bucket_of.find(r.id);
      if (bucket == bucket_of.end()) continue;
      int& at = open[bucket->second];
      const size_t most = buckets[bucket->second].spans_layers ? t : kKeepNodes;
      if (at >= 0 && t - found[static_cast<size_t>(at)].last <= most) {
        found[static_cast<size_t>(at)].last = t;
      } else {
        at = static_cast<int>(found.size());
        found.push_back({bucket->second, t, t});
      }
    }
  }
  return found;  // in order of their first nodes
}

}  // namespace

void prefetch_parameters(Graph* graph, const std::vector<Bucket>& buckets) {
  std::map<int, size_t> bucket_of;
  for (size_t b = 0; b < buckets.size(); ++b) {
    for (Ref p : buckets[b].parameters) bucket_of[p.id] = b;
  }
  const std::vector<Stretch> stretches = find_stretches(*graph, bucket_of, buckets);
  std::vector<std::vector<Node>> before(graph->pass.size());  // gathers, by the node they precede
  for (size_t s = 0; s < stretches.size(); ++s) {
    const Stretch& stretch = stretches[s];
    const Bucket& bucket = buckets[stretch.bucket];
    const Value& shard = (*graph)[bucket.param_shard];
    Value whole{fmt::format("bucket{}.gathered{}", stretch.bucket, s),
                {bucket.elements},
                shard.dtype,
                ValueKind::kActivation};
    whole.is_bucket = true;
    const Ref gathered = graph->add(std::move(whole));
    std::map<int, Ref> views;
    for (size_t i = 0; i < bucket.parameters.size(); ++i) {
      Value view = (*graph)[bucket.parameters[i]];
      view.name += fmt::format(".gathered{}", s);
      view.base = gathered;
      view.base_offset = bucket.offsets[i];
      views[bucket.parameters[i].id] = graph->add(std::move(view));
    }
    for (size_t t = stretch.first; t <= stretch.last; ++t) {
      for (Ref& r : graph->pass[t].inputs) {
        if (const auto view = views.find(r.id); view != views.end()) r = view->second;
      }
    }
    Node gather = data_collective(&kAllGatherOp, {bucket.param_shard}, {gathered}, bucket.layer);
    before[s == 0 ? stretch.first : stretches[s - 1].first].push_back(std::move(gather));
  }
  std::vector<Node> nodes;
  for (size_t t = 0; t < graph->pass.size(); ++t) {
    for (Node& gather : before[t]) nodes.push_back(std::move(gather));
    nodes.push_back(std::move(graph->pass[t]));
  }
  graph->pass = std::move(nodes);
}

}  // namespace weft
