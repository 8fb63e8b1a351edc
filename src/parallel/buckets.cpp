// parallel/buckets.cpp: parameters sorted by the layer of their first use.
#include "parallel/buckets.h"

#include <algorithm>
#include <map>
#include <tuple>

#include "base/error.h"
#include "base/round_up.h"
#include "tensor/cell.h"

namespace weft {
namespace {

// Embedding and head are outside the layers and used at opposite ends of a pass.
using BucketKey = std::tuple<int, bool, bool, int, bool>;
BucketKey bucket_key(const Graph& graph, const Node& node, bool behind_layers, Ref parameter,
                     bool spans_layers) {
  return {node.layer, node.layer < 0 && behind_layers, graph[parameter].frozen,
          graph[parameter].copy_group, spans_layers};
}

// The parameters that nodes of several layers read.
std::vector<bool> find_spanning(const Graph& graph) {
  std::vector<int> first(graph.values.size(), -1);  // layer that reads it first
  std::vector<bool> spans(graph.values.size(), false);
  for (const Node& node : graph.pass) {
    for (Ref r : node.inputs) {
      if (!r || node.layer < 0 || graph[r].kind != ValueKind::kParameter) continue;
      int& layer = first[static_cast<size_t>(r.id)];
      if (layer < 0) layer = node.layer;
      if (layer != node.layer) spans[static_cast<size_t>(r.id)] = true;
    }
  }
  return spans;
}

}  // namespace

std::vector<Bucket> make_buckets(const Graph& graph, int dp) {
  std::map<int, Ref> gradient_of;
  for (const Update& u : graph.updates) gradient_of[u.parameter.id] = u.gradient;
  std::vector<Bucket> buckets;
  std::map<BucketKey, size_t> known;
  std::vector<bool> seen(graph.values.size(), false);
  const std::vector<bool> spans = find_spanning(graph);
  bool behind_layers = false;
  for (const Node& node : graph.pass) {
    behind_layers = behind_layers || node.layer >= 0;
    for (Ref r : node.inputs) {
      const size_t id = static_cast<size_t>(r.id);
      if (graph[r].kind != ValueKind::kParameter || seen[id]) continue;
      seen[id] = true;
      const auto [found, is_new] =
          known.try_emplace(bucket_key(graph, node, behind_layers, r, spans[id]), buckets.size());
      if (is_new) {
        Bucket& made = buckets.emplace_back();
        made.index = static_cast<int>(buckets.size()) - 1;
        made.layer = node.layer;
        made.is_frozen = graph[r].frozen;
        made.spans_layers = spans[id];
      }
      Bucket& bucket = buckets[found->second];
      bucket.parameters.push_back(r);
      const auto gradient = gradient_of.find(r.id);
      bucket.gradients.push_back(gradient == gradient_of.end() ? Ref{} : gradient->second);
      bucket.offsets.push_back(bucket.elements);
      bucket.elements += round_up(num_elements(graph[r].shape), kNormCell);
    }
  }
  for (Bucket& b : buckets) b.elements = round_up(b.elements, kNormCell * dp);
  return buckets;
}

BucketPlaces places_of(const Graph& graph, const std::vector<Bucket>& buckets) {
  BucketPlaces places;
  for (size_t b = 0; b < buckets.size(); ++b) {
    places.buckets.push_back({buckets[b].elements, buckets[b].spans_layers});
    for (size_t i = 0; i < buckets[b].parameters.size(); ++i)
      places.parameters[graph[buckets[b].parameters[i]].name] = {b, buckets[b].offsets[i]};
  }
  return places;
}

std::vector<Bucket> find_buckets(const Graph& graph, const BucketPlaces& places) {
  std::vector<Bucket> buckets;
  std::map<size_t, size_t> known;  // by index
  std::vector<bool> seen(graph.values.size(), false);
  for (const Node& node : graph.pass) {
    for (Ref r : node.inputs) {
      const auto id = static_cast<size_t>(r.id);
      if (graph[r].kind != ValueKind::kParameter || seen[id]) continue;
      seen[id] = true;
      const auto place = places.parameters.find(graph[r].name);
      ensure(place != places.parameters.end(), graph[r].name + " is in no bucket");
      const auto [index, offset] = place->second;
      const auto [found, is_new] = known.try_emplace(index, buckets.size());
      if (is_new) {
        Bucket& made = buckets.emplace_back();
        made.index = static_cast<int>(index);
        made.layer = node.layer;
        made.spans_layers = places.buckets[index].spans_layers;
        made.elements = places.buckets[index].elements;
      }
      Bucket& bucket = buckets[found->second];
      bucket.parameters.push_back(r);
      bucket.gradients.push_back(Ref{});
      bucket.offsets.push_back(offset);
    }
  }
  return buckets;
}

std::pair<int64_t, int64_t> owned_range(const Graph& graph, const Bucket& b, size_t i, int dp,
                                        int rank) {
  const int64_t n = num_elements(graph[b.parameters[i]].shape), shard = b.elements / dp;
  const int64_t begin = rank * shard - b.offsets[i], end = begin + shard;
  return {std::clamp<int64_t>(begin, 0, n), std::clamp<int64_t>(end, 0, n)};
}

}  // namespace weft
