// planning/rank_classes.cpp: compares graphs after the tensor cut, then the segments of each rank.
#include "planning/rank_classes.h"

#include <map>

#include "base/hash.h"
#include "parallel/buckets.h"
#include "parallel/tensor_parallel.h"
#include "planning/graphs.h"

namespace weft {
namespace {

// Everything that determines the sizes of values, scratch and calls. Names and offsets in the whole
// tensors are omitted.
uint64_t structure_hash(const Graph& graph) {
  std::vector<int64_t> words;
  for (const Value& v : graph.values) {
    words.insert(words.end(), v.shape.begin(), v.shape.end());
    for (const auto word : {static_cast<int>(v.dtype), static_cast<int>(v.kind), v.copies,
                            static_cast<int>(v.frozen), static_cast<int>(v.is_counted)}) {
      words.push_back(word);
    }
  }
  for (const Node& node : graph.pass) {
    words.push_back(reinterpret_cast<intptr_t>(node.op));
    for (const auto* refs : {&node.inputs, &node.outputs}) {
      for (Ref r : *refs) words.push_back(r.id);
    }
  }
  return hash_bytes(words.data(), words.size() * sizeof words[0]);
}

// The sizes of a rank's segments of all buckets.
std::vector<int64_t> segments_of(const Graph& graph, const std::vector<Bucket>& buckets, int dp,
                                 int dp_rank) {
  std::vector<int64_t> sizes;
  for (const Bucket& b : buckets) {
    for (size_t i = 0; i < b.parameters.size(); ++i) {
      const auto [begin, end] = owned_range(graph, b, i, dp, dp_rank);
      if (end > begin) sizes.push_back(end - begin);
    }
    sizes.push_back(-1);  // between buckets
  }
  return sizes;
}

}  // namespace

CutGraphs make_cut_graphs(const RunConfig& c, const Model& model, const Layout& layout) {
  const Graph logical = make_logical_graph(c, model);
  const Cuts cuts = cuts_of(model);
  CutGraphs cut;
  for (int t = 0; t < layout.tp; ++t) {
    Graph graph = logical;
    apply_tensor_parallel(&graph, cuts, layout.tensor(t));
    cut.hashes.push_back(structure_hash(graph));
    cut.graphs.push_back(std::move(graph));
  }
  return cut;
}

RankClasses find_rank_classes(const CutGraphs& cut, const Layout& layout) {
  RankClasses classes;
  classes.of.resize(static_cast<size_t>(layout.num_ranks()));
  std::vector<std::vector<Bucket>> buckets;
  const bool is_cut = layout.dp > 1 && layout.shard != Shard::kNone;
  for (const Graph& graph : cut.graphs)
    buckets.push_back(is_cut ? make_buckets(graph, layout.dp) : std::vector<Bucket>());
  std::map<std::pair<uint64_t, std::vector<int64_t>>, int> known;
  for (int rank = 0; rank < layout.num_ranks(); ++rank) {
    const auto t = static_cast<size_t>(layout.tp_rank(rank));
    auto segments = segments_of(cut.graphs[t], buckets[t], layout.dp, layout.dp_rank(rank));
    const auto [found, is_new] = known.try_emplace({cut.hashes[t], std::move(segments)},
                                                   static_cast<int>(classes.first.size()));
    if (is_new) classes.first.push_back(rank);
    classes.of[static_cast<size_t>(rank)] = found->second;
  }
  return classes;
}

}  // namespace weft
