// tests/parallel/tensor_parallel_test.cpp: copies of key/value heads in the graph of one rank.
#include "parallel/tensor_parallel.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "base/error.h"
#include "graph/autodiff.h"
#include "graph/ops/add.h"
#include "graph/ops/collectives.h"
#include "tests/graph/decoder_graph.h"

namespace weft {
namespace {

using testing::count;
using testing::DecoderShape;
using testing::writers;

// 8 heads of 8, 2 key/value heads, a layer.
DecoderShape shape(bool bias) {
  DecoderShape s;
  s.heads = 8;
  s.layers = 1;
  s.bias = bias;
  return s;
}

Cuts cuts(const DecoderShape& s) {
  return {{"embed", {0, 1, true}},
          {"0.q", {0, s.head_dim}},
          {"0.k", {0, s.head_dim}},
          {"0.v", {0, s.head_dim}},
          {"0.q.bias", {0, s.head_dim}},
          {"0.k.bias", {0, s.head_dim}},
          {"0.v.bias", {0, s.head_dim}},
          {"0.o", {1, s.head_dim}},
          {"0.gate", {0, 1}},
          {"0.up", {0, 1}},
          {"0.down", {1, 1}}};
}

Graph cut_graph(const TensorParallel& mesh, bool bias = true, const char* frozen = nullptr) {
  const DecoderShape s = shape(bias);
  Graph graph;
  const Ref losses = testing::trace_decoder(&graph, s);
  if (frozen) testing::freeze(&graph, frozen);
  add_backward(&graph, losses, Dtype::kF32);
  apply_tensor_parallel(&graph, cuts(s), mesh);
  return graph;
}

const Node& only(const Graph& graph, Op op) {
  const Node* found = nullptr;
  for (const Node& node : graph.pass) {
    if (node.op != op) continue;
    EXPECT_EQ(found, nullptr);
    found = &node;
  }
  return *found;
}

// Inputs of the product of q, k and v, in order.
std::vector<std::string> weights_of_qkv(const Graph& graph) {
  for (const Node& node : graph.pass) {
    if (node.op != &kLinearOp) continue;
    std::vector<std::string> names;
    for (int p = 0; p < node.as<LinearAttr>().parts; ++p) {
      names.push_back(graph[node.inputs[static_cast<size_t>(1 + p)]].name);
    }
    return names;
  }
  return {};
}

// Each leaf reads a separate copy; the parameter exists once.
TEST(Copies, LeavesOfARankReadOneParameter) {
  const Graph graph = cut_graph({1, 0, 4, true});
  const std::vector<std::string> wanted = {"0.q[0:16]", "0.q[16:32]", "0.q[32:48]", "0.q[48:64]",
                                           "0.k[0:8]",  "0.k[0:8]",   "0.k[8:16]",  "0.k[8:16]",
                                           "0.v[0:8]",  "0.v[0:8]",   "0.v[8:16]",  "0.v[8:16]"};
  EXPECT_EQ(weights_of_qkv(graph), wanted);
  EXPECT_EQ(only(graph, &kAttentionOp).as<AttentionAttr>().heads.kv_heads, 4);
  EXPECT_EQ(only(graph, &kAttentionGradOp).as<AttentionAttr>().heads.kv_heads, 4);
  std::set<int> updated;
  for (const Update& u : graph.updates) EXPECT_TRUE(updated.insert(u.parameter.id).second);
}

// The addends of two leaves become the gradient by one addition, on the rank that has both.
TEST(Copies, AddendsOfARankAreAddedThere) {
  for (const TensorParallel& mesh : {TensorParallel{1, 0, 4, true}, {2, 1, 4, true}}) {
    const Graph graph = cut_graph(mesh);
    for (const char* name : {"0.k[8:16]#grad", "0.v[8:16]#grad", "0.k.bias[8:16]#grad"}) {
      const auto made_by = writers(graph, name);
      ASSERT_EQ(made_by.size(), 1u) << name;
      EXPECT_EQ(made_by[0]->op, &kAddOp);
      EXPECT_NE(made_by[0]->inputs[0], made_by[0]->inputs[1]);
    }
    EXPECT_EQ(writers(graph, "0.q[48:64]#grad").at(0)->op, &kLinearDwOp);
    for (const Update& u : graph.updates) EXPECT_EQ(graph[u.gradient].copies, 1);
  }
}

// On two ranks: an addend each, added over the ranks in the pass, and counted on one of them.
TEST(Copies, AddendsOfSeveralRanksAreSummedInThePass) {
  for (int rank = 0; rank < 4; ++rank) {
    const Graph graph = cut_graph({4, rank, 4, true});
    const char* name = rank < 2 ? "0.k[0:8]#grad" : "0.k[8:16]#grad";
    const auto made_by = writers(graph, name);
    ASSERT_EQ(made_by.size(), 1u);
    EXPECT_EQ(made_by[0]->op, &kAllReduceOp);
    EXPECT_EQ(made_by[0]->as<CollectiveAttr>().copies, 2);
    EXPECT_EQ(graph[*graph.find(name)].is_counted, rank % 2 == 0);
    EXPECT_EQ(graph[graph[*graph.find(name)].parameter].is_saved, rank % 2 == 0);
    EXPECT_EQ(graph[graph[*graph.find(name)].parameter].copies, 2);
  }
}

// Eight leaves on four ranks: first the rank's own two, then the two ranks'.
TEST(Copies, TheTreesUpperLevelsAreTheRanks) {
  const Graph graph = cut_graph({4, 1, 8, true});
  const auto made_by = writers(graph, "0.k[0:8]#grad");
  ASSERT_EQ(made_by.size(), 1u);
  EXPECT_EQ(made_by[0]->op, &kAllReduceOp);
  const auto is_own = [&](const Node& n) { return n.outputs[0] == made_by[0]->inputs[0]; };
  const auto own = std::find_if(graph.pass.begin(), graph.pass.end(), is_own);
  ASSERT_NE(own, graph.pass.end());
  EXPECT_EQ(own->op, &kAddOp);
}

TEST(Copies, NoneWhereHeadsAreEnough) {
  const Graph graph = cut_graph({1, 0, 2, true});
  EXPECT_EQ(count(graph, &kAddOp), 0);
  EXPECT_EQ(writers(graph, "0.k[0:8]#grad").at(0)->op, &kLinearDwOp);
}

// A frozen k has no gradient; q and v keep theirs, from their own columns.
TEST(Copies, AFrozenParameterHasNoAddends) {
  const Graph graph = cut_graph({1, 0, 4, true}, false, "0.k");
  EXPECT_FALSE(graph.find("0.k[0:8]#grad").has_value());
  const Node* v = nullptr;
  for (const Node& node : graph.pass) {
    if (node.op == &kLinearDwOp && graph[node.outputs[0]].name == "0.v[0:8]#grad.addend") v = &node;
  }
  ASSERT_NE(v, nullptr);
  EXPECT_EQ(v->as<LinearAttr>().column, 64 + 4 * 8);
  EXPECT_EQ(v->as<LinearAttr>().parts, 4);
}

// The bias of a product that is summed over ranks is added once, after the sum.
TEST(RowCut, TheBiasIsAddedOnce) {
  for (const int tp : {1, 2}) {
    DecoderShape s = shape(false);
    s.o_bias = true;
    Graph graph;
    add_backward(&graph, testing::trace_decoder(&graph, s), Dtype::kF32);
    apply_tensor_parallel(&graph, cuts(s), {tp, 0, 4, true});
    const auto is_row_cut = [](const Node& n) {
      return n.op == &kLinearOp && n.as<LinearAttr>().row_pieces > 0;
    };
    const auto product = std::find_if(graph.pass.begin(), graph.pass.end(), is_row_cut);
    ASSERT_NE(product, graph.pass.end());
    EXPECT_EQ(graph[product->inputs[1]].name, "0.o[0:16]");
    EXPECT_EQ(product->as<LinearAttr>().row_pieces, 4 / tp);
    EXPECT_EQ(product->as<LinearAttr>().has_bias, tp == 1);
    const Node& adds = tp == 1 ? *product : *(product + 1);
    EXPECT_EQ(adds.op, tp == 1 ? &kLinearOp : &kAllReduceOp);
    EXPECT_TRUE(tp == 1 ? adds.as<LinearAttr>().has_bias : adds.as<CollectiveAttr>().has_bias);
    EXPECT_EQ(graph[adds.inputs.back()].name, "0.o.bias");
    EXPECT_EQ(product->inputs.size(), tp == 1 ? 6u : 3u);
  }
}

// Fast mode: the optimizer sums over the ranks, once per step.
TEST(Copies, InFastModeAreLeftToTheOptimizer) {
  const Graph graph = cut_graph({4, 1, 4, false});
  EXPECT_EQ(writers(graph, "0.k[0:8]#grad").at(0)->op, &kLinearDwOp);
  EXPECT_EQ(graph[*graph.find("0.k[0:8]#grad")].copies, 2);
}

// Attention of a layout with a relative table, forward and backward. one_weight: values of several
// kinds are products with a single weight.
Graph attention_graph(QkvLayout layout, bool one_weight = false) {
  Graph graph;
  Builder g(&graph, Dtype::kF32);
  const Ref x =
      ops::embedding(g, g.input("ids", {2, 3}, Dtype::kI32), g.parameter("embed", {10, 8}), -1);
  const auto value = [&](std::initializer_list<const char*> names, int64_t columns) {
    std::vector<Ref> weights;
    for (const char* name : names) weights.push_back(g.parameter(name, {columns, 8}));
    return ops::linear(g, x, weights, {});
  };
  AttentionCall call;
  call.layout = layout;
  call.heads = {4, 4, 2};
  call.lengths = g.input("lengths", {2}, Dtype::kI32);
  call.bias = ScoreBias::kRelative;
  call.table = g.parameter("table", {6, 4});
  call.max_distance = 9;
  if (layout == QkvLayout::kPacked) {
    call.values = {one_weight ? value({"qkv"}, 24) : value({"q", "k", "v"}, 8)};
  } else if (layout == QkvLayout::kInterleaved) {
    call.values = {one_weight ? value({"qkv"}, 24) : value({"q", "k", "v"}, 8)};
  } else if (layout == QkvLayout::kQAndKv) {
    call.values = {value({"q"}, 8), one_weight ? value({"kv"}, 16) : value({"k", "v"}, 8)};
  } else {
    call.values = {value({"q"}, 8), value({"k"}, 8), value({"v"}, 8)};
  }
  const Ref y = ops::linear(g, ops::attention(g, call), {g.parameter("o", {8, 8})}, {});
  const Ref losses = ops::head_loss(g, y, g.parameter("head", {10, 8}),
                                    g.input("targets", {2, 3}, Dtype::kI32), 4);
  add_backward(&graph, losses, Dtype::kF32);
  return graph;
}
const Cuts kHeadCuts = {{"table", {1, 1}}, {"o", {1, 2}},   {"q", {0, 2}}, {"k", {0, 2}},
                        {"v", {0, 2}},     {"qkv", {0, 6}}, {"kv", {0, 4}}};

// Heads of every layout, their bias table and the model's first head of a rank; also where exact
// mode has more leaves than ranks.
TEST(CutAttention, ARankHasItsHeadsAndTheirColumnsOfTheTable) {
  for (const TensorParallel& mesh :
       {TensorParallel{2, 1, 2, false}, {1, 0, 4, true}, {2, 1, 4, true}}) {
    for (const QkvLayout layout :
         {QkvLayout::kPacked, QkvLayout::kInterleaved, QkvLayout::kQAndKv, QkvLayout::kSeparate}) {
      Graph graph = attention_graph(layout, layout == QkvLayout::kInterleaved);
      apply_tensor_parallel(&graph, kHeadCuts, mesh);
      const int64_t here = 4 / mesh.tp;
      for (const Op op : {&kAttentionOp, &kAttentionGradOp}) {
        const Node& node = only(graph, op);
        const AttentionAttr& attr = node.as<AttentionAttr>();
        EXPECT_EQ(attr.heads.heads, here);
        EXPECT_EQ(attr.heads.kv_heads, here);
        EXPECT_EQ(attr.first_head, mesh.rank * here);
        EXPECT_EQ(attr.model_heads, 4);
        EXPECT_EQ(graph[attention_inputs(node).table].shape, (Shape{6, here}));
      }
      const Value& dtable = graph[only(graph, &kAttentionGradOp).outputs.back()];
      EXPECT_EQ(dtable.shape, (Shape{6, here}));
      EXPECT_EQ(dtable.name, mesh.tp == 1 ? "table#grad" : "table[2:4]#grad");
    }
  }
}

std::string refusal(Graph graph, const Cuts& parameters) {
  try {
    apply_tensor_parallel(&graph, parameters, {2, 0, 2, false});
  } catch (const BugError& e) {
    return e.what();
  }
  return "";
}

// Of one weight a rank has a run of columns: all of q and some of k, not a share of each.
TEST(CutAttention, WeightsMustBeStackedAsTheHeadsLie) {
  for (const auto& [layout, one_weight] : {std::pair{QkvLayout::kPacked, true},
                                           {QkvLayout::kQAndKv, true},
                                           {QkvLayout::kInterleaved, false}}) {
    const std::string text = refusal(attention_graph(layout, one_weight), kHeadCuts);
    EXPECT_NE(text.find("stacked weights to be cut by heads"), std::string::npos) << text;
    EXPECT_EQ(refusal(attention_graph(layout, !one_weight), kHeadCuts), "");
  }
}

// A rank has columns 0, 1 and 4, 5 of two stacked weights, but 0 to 3 of one.
TEST(CutSum, AddendsMustBeStackedAlike) {
  for (const bool alike : {true, false}) {
    Graph graph;
    Builder g(&graph, Dtype::kF32);
    const Ref x =
        ops::embedding(g, g.input("ids", {2, 3}, Dtype::kI32), g.parameter("embed", {10, 8}), -1);
    const Ref stacked = ops::linear(g, x, {g.parameter("a", {4, 8}), g.parameter("b", {4, 8})}, {});
    const Ref other =
        alike ? ops::linear(g, x, {g.parameter("c", {4, 8}), g.parameter("d", {4, 8})}, {})
              : ops::linear(g, x, {g.parameter("c", {8, 8})}, {});
    const Ref sum = ops::add(g, other, stacked);
    ops::linear(g, sum, {g.parameter("o", {8, 8})}, {});
    const Cuts parameters = {
        {"a", {0, 1}}, {"b", {0, 1}}, {"c", {0, 1}}, {"d", {0, 1}}, {"o", {1, 1}}};
    const std::string text = refusal(std::move(graph), parameters);
    EXPECT_EQ(text.find("differently stacked") == std::string::npos, alike) << text;
    EXPECT_EQ(text.empty(), alike) << text;
  }
}

}  // namespace
}  // namespace weft
