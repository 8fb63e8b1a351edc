// tests/parallel/data_parallel_test.cpp: every element is saved by exactly one rank of the
// data-parallel axis.
#include "parallel/data_parallel.h"

#include <gtest/gtest.h>

#include <map>
#include <set>

#include "exec/slots.h"
#include "graph/autodiff.h"
#include "graph/ops/collectives.h"
#include "graph/portion.h"
#include "tests/graph/decoder_graph.h"

namespace weft {
namespace {

constexpr Shard kShards[] = {Shard::kNone, Shard::kZero1, Shard::kZero2, Shard::kZero3};

// A decoder of one rank; a copy that another tensor-parallel rank saves is not saved here.
Graph rank_graph(const DataParallel& mesh, const char* not_ours) {
  Graph graph;
  const Ref losses = testing::trace_decoder(&graph, {.layers = 3});
  for (Ref r : graph.of_kind(ValueKind::kParameter)) {
    if (graph[r].name == not_ours) graph[r].is_saved = false;
  }
  add_backward(&graph, losses, Dtype::kF32);
  apply_data_parallel(&graph, mesh);
  return graph;
}

std::string base_name(const Value& v) { return v.name.substr(0, v.name.find('(')); }

// By parameter and element: how many ranks save it.
using Saves = std::map<std::string, std::vector<int>>;

// Counts what one rank saves; returns the number of its tensors.
int add_saved(const Graph& graph, Saves* saves) {
  int count = 0;
  for (Ref r : graph.of_kind(ValueKind::kParameter)) {
    const Value& v = graph[r];
    if (v.is_bucket || !v.is_saved) continue;
    const Portion p = portion_of(v);
    std::vector<int>& elements = saves->at(base_name(v));
    for (int64_t i = p.begin; i < p.end; ++i) ++elements.at(static_cast<size_t>(i));
    ++count;
  }
  return count;
}

Saves no_saves() {
  Graph graph;
  testing::trace_decoder(&graph, {.layers = 3});
  Saves saves;
  for (Ref r : graph.of_kind(ValueKind::kParameter)) {
    saves[graph[r].name].assign(static_cast<size_t>(num_elements(graph[r].shape)), 0);
  }
  return saves;
}

TEST(DataParallel, EveryElementIsSavedOnce) {
  for (const int dp : {2, 3, 4}) {
    for (const Shard shard : kShards) {
      Saves saves = no_saves();
      int ranks_that_save = 0;
      for (int rank = 0; rank < dp; ++rank) {
        const Graph graph = rank_graph({dp, rank, shard}, "");
        ranks_that_save += add_saved(graph, &saves) > 0;
      }
      for (const auto& [name, elements] : saves) {
        EXPECT_EQ(std::set<int>(elements.begin(), elements.end()), std::set<int>{1})
            << name << ", dp " << dp << ", shard " << static_cast<int>(shard);
      }
      EXPECT_EQ(ranks_that_save, dp) << "the work is shared, shard " << static_cast<int>(shard);
    }
  }
}

TEST(DataParallel, CopiesOfAnotherTensorParallelRankAreNotSaved) {
  for (const Shard shard : kShards) {
    Saves saves = no_saves();
    for (int rank = 0; rank < 2; ++rank) add_saved(rank_graph({2, rank, shard}, "0.norm2"), &saves);
    for (const auto& [name, elements] : saves) {
      const int wanted = name == "0.norm2" ? 0 : 1;
      EXPECT_EQ(std::set<int>(elements.begin(), elements.end()), std::set<int>{wanted}) << name;
    }
  }
}

// The table of data_parallel.h: a bucket is reduced once per pass, by the shard's collective, and
// gathered after the update where parameters are whole and states are not.
TEST(DataParallel, CollectivesOfABucket) {
  const struct {
    Shard shard;
    Op reduction;
    bool is_last_pass_only, gathers;
  } kWanted[] = {{Shard::kNone, &kAllReduceOp, true, false},
                 {Shard::kZero1, &kReduceScatterOp, true, true},
                 {Shard::kZero2, &kReduceScatterOp, false, true},
                 {Shard::kZero3, &kReduceScatterOp, false, false}};
  for (const auto& wanted : kWanted) {
    Graph graph;
    add_backward(&graph, testing::trace_decoder(&graph, {.layers = 3}), Dtype::kF32);
    const DataParallel mesh{2, 1, wanted.shard, 3};
    const auto buckets = apply_data_parallel(&graph, mesh);
    const auto num_buckets = static_cast<int64_t>(buckets.size());
    EXPECT_GE(num_buckets, 2);
    int64_t reductions = 0;
    for (const Node& node : graph.pass) {
      if (node.op != &kAllReduceOp && node.op != &kReduceScatterOp) continue;
      EXPECT_EQ(node.op, wanted.reduction);
      EXPECT_EQ(node.as<CollectiveAttr>().axis, Axis::kData);
      EXPECT_EQ(node.run.last_pass_only, wanted.is_last_pass_only);
      ++reductions;
    }
    EXPECT_EQ(reductions, num_buckets);
    add_parameter_gathers(&graph, buckets, mesh);
    EXPECT_EQ(static_cast<int64_t>(graph.finish.size()), wanted.gathers ? num_buckets : 0);
    for (const Node& node : graph.finish) EXPECT_EQ(node.op, &kAllGatherOp);
  }
}

// A weight that all layers read is in a bucket of its own, which zero3 gathers once and keeps; each
// layer's own bucket is gathered before its forward and its backward pass.
TEST(DataParallel, WhatAllLayersReadIsGatheredOnce) {
  constexpr int64_t kLayers = 4, kWidth = 32;
  Graph graph;
  Builder g(&graph, Dtype::kF32);
  const Ref ids = g.input("ids", {2, 6}, Dtype::kI32),
            targets = g.input("targets", {2, 6}, Dtype::kI32);
  const Ref table = g.parameter("table", {40, kWidth}), all = g.parameter("all", {kWidth, kWidth});
  Ref x = ops::embedding(g, ids, table, -1);
  for (int64_t i = 0; i < kLayers; ++i) {
    g.set_layer(static_cast<int>(i));
    for (const char* name : {"a", "b", "c", "d"})
      x = ops::linear(g, x, {g.parameter(fmt::format("{}.{}", i, name), {kWidth, kWidth})}, {});
    x = ops::linear(g, x, {all}, {});
  }
  g.set_layer(-1);
  add_backward(&graph, ops::head_loss(g, x, table, targets, 12), Dtype::kF32);
  const auto buckets = apply_data_parallel(&graph, {2, 0, Shard::kZero3, 1});
  ASSERT_EQ(buckets.size(), 2u + kLayers);
  std::map<int, int> gathers;  // by shard
  for (const Node& node : graph.pass) gathers[node.op == &kAllGatherOp ? node.inputs[0].id : -1]++;
  for (const Bucket& b : buckets) {
    EXPECT_EQ(gathers[b.param_shard.id], b.spans_layers ? 1 : 2) << b.layer;
    EXPECT_EQ(b.spans_layers, b.parameters == std::vector<Ref>{all});
  }
}

// A graph that reads a part of another's parameters, in another order, finds their shards where the
// other has them.
TEST(DataParallel, AnotherGraphReadsTheSameShards) {
  Graph trained;
  const Ref losses = testing::trace_decoder(&trained, {.layers = 3});
  for (Ref r : trained.of_kind(ValueKind::kParameter))  // in buckets of their own
    trained[r].frozen = trained[r].shape.size() == 1;
  add_backward(&trained, losses, Dtype::kF32);
  const BucketPlaces places = places_of(trained, make_buckets(trained, 2));
  apply_data_parallel(&trained, {2, 1, Shard::kZero3, 1});
  Graph reader;
  Builder g(&reader, Dtype::kF32);
  std::vector<std::pair<std::string, Shape>> read;
  for (Ref r : trained.of_kind(ValueKind::kParameter)) {
    const Portion p = portion_of(trained[r]);
    if (!trained[r].is_bucket && p.shape.size() == 2) read.emplace_back(p.name, p.shape);
  }
  ASSERT_GT(read.size(), 6u);
  for (size_t i = read.size(); i-- > 2;) {
    const auto& [name, shape] = read[i];
    ops::linear(g, g.input(name + ".x", {2, 3, shape[1]}, Dtype::kF32), {g.parameter(name, shape)},
                {});
  }
  apply_data_parallel(&reader, {2, 1, Shard::kZero3, 1}, places);
  std::map<std::string, Value> stored;
  for (Ref r : trained.of_kind(ValueKind::kParameter)) stored[trained[r].name] = trained[r];
  size_t found = 0;
  for (Ref r : reader.of_kind(ValueKind::kParameter)) {
    const Value& v = reader[r];
    ASSERT_TRUE(stored.contains(v.name)) << v.name;
    const Value& same = stored[v.name];
    EXPECT_EQ(same.shape, v.shape) << v.name;
    if (v.is_bucket) continue;
    ++found;
    EXPECT_EQ(trained[same.base].name, reader[v.base].name) << v.name;
    EXPECT_EQ(same.base_offset, v.base_offset) << v.name;
  }
  EXPECT_GT(found, 3u);
}

// Exact mode: leaves are added in accumulators, and each bucket is still reduced by one node: by
// the gradients' writers, whose sums are reduced in the last pass, or by an all_to_all of every
// pass where no whole gradients are kept.
TEST(DataParallel, ExactGradientsGoThroughAccumulators) {
  for (const Shard shard : kShards) {
    SCOPED_TRACE(static_cast<int>(shard));
    Graph graph;
    add_backward(&graph, testing::trace_decoder(&graph, {.layers = 3}), Dtype::kF32);
    DataParallel mesh{2, 1, shard, 4};
    mesh.is_exact = true;
    mesh.groups = 4;
    const bool pass_major = shard >= Shard::kZero2;
    ASSERT_EQ(mesh.is_pass_major(), pass_major);
    const auto buckets = apply_data_parallel(&graph, mesh);
    std::set<int> gradients;
    for (const auto& bucket : buckets) {
      for (const Ref g : bucket.gradients) gradients.insert(g.id);
    }
    size_t reductions = 0, writers = 0;
    for (const Node& node : graph.pass) {
      if (node.op == &kAllReduceOp || node.op == &kReduceScatterOp || node.op == &kAllToAllOp) {
        EXPECT_EQ(node.op == &kAllToAllOp, pass_major);
        EXPECT_EQ(node.run.slots > 0, pass_major);
        EXPECT_EQ(node.run.last_pass_only, !pass_major);
        ++reductions;
        continue;
      }
      for (const Ref r : node.outputs) {
        if (!r || !gradients.contains(r.id)) continue;
        EXPECT_EQ(node.run.slots > 0, !pass_major) << op_name(node.op);
        ++writers;
      }
    }
    EXPECT_EQ(reductions, buckets.size());
    EXPECT_GE(writers, buckets.size());
    EXPECT_EQ(testing::count(graph, &kAccumulateOp) > 0, !pass_major);
  }
}

// A rank has the accumulators that the sum of its leaves touches, and no other.
TEST(DataParallel, NoAccumulatorIsNeverTouched) {
  for (const int groups : {1, 2, 4, 8}) {
    for (const int group_leaves : {1, 2, 3}) {
      Graph graph;
      add_backward(&graph, testing::trace_decoder(&graph, {.layers = 1}), Dtype::kF32);
      DataParallel mesh{1, 0, Shard::kNone, groups * group_leaves};
      mesh.is_exact = true;
      mesh.groups = groups;
      apply_data_parallel(&graph, mesh);
      std::set<int> touched;
      for (int leaf = 0; leaf < groups * group_leaves; ++leaf) {
        const SlotStep step = next_slot(leaf, group_leaves);
        touched.insert(step.slot);
        for (int i = 0; i < step.count; ++i) EXPECT_TRUE(touched.contains(step.first - i));
      }
      int writers = 0;
      for (const Node& node : graph.pass) {
        if (node.run.slots == 0) continue;
        EXPECT_EQ(static_cast<size_t>(node.run.slots), touched.size()) << groups << " groups";
        ++writers;
      }
      EXPECT_GT(writers, 0);
    }
  }
}

// One rank in exact mode adds leaves, and has no peers to reduce with.
TEST(DataParallel, OneRankHasNoCollective) {
  Graph graph;
  add_backward(&graph, testing::trace_decoder(&graph, {.layers = 3}), Dtype::kF32);
  DataParallel mesh;
  mesh.is_exact = true;
  mesh.num_passes = 4;
  EXPECT_FALSE(apply_data_parallel(&graph, mesh).empty());
  for (const Node& node : graph.pass) EXPECT_FALSE(is_collective(node.op)) << op_name(node.op);
  EXPECT_GT(testing::count(graph, &kAccumulateOp), 0);
}

}  // namespace
}  // namespace weft
