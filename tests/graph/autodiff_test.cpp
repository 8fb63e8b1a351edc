// tests/graph/autodiff_test.cpp: which gradients are computed, by which nodes, and which are not.
#include "graph/autodiff.h"

#include <gtest/gtest.h>

#include <set>

#include "base/error.h"
#include "graph/ops/loss_sum.h"
#include "tests/graph/decoder_graph.h"

namespace weft {
namespace {

using testing::count;
using testing::DecoderShape;
using testing::freeze;
using testing::trace_decoder;
using testing::writers;

Graph differentiated_decoder(const DecoderShape& shape,
                             const std::vector<std::string>& frozen = {}) {
  Graph graph;
  const Ref losses = trace_decoder(&graph, shape);
  for (const std::string& part : frozen) freeze(&graph, part);
  add_backward(&graph, losses, Dtype::kF32);
  return graph;
}

TEST(Autodiff, OneGradientPerParameter) {
  for (bool bias : {false, true}) {
    const Graph graph = differentiated_decoder({.bias = bias, .tied = false});
    const auto gradients = graph.of_kind(ValueKind::kGradient);
    EXPECT_EQ(gradients.size(), graph.of_kind(ValueKind::kParameter).size());
    for (Ref r : gradients) {
      const Value& g = graph[r];
      EXPECT_EQ(g.shape, graph[g.parameter].shape);
      EXPECT_EQ(g.name, graph[g.parameter].name + "#grad");
      const auto by = writers(graph, g.name);
      ASSERT_EQ(by.size(), 1u) << g.name;
      EXPECT_TRUE(by[0]->run.first_writer);
    }
  }
}

TEST(Autodiff, TiedParameterHasTwoWritersTheFirstStores) {
  const Graph graph = differentiated_decoder({.tied = true});
  const auto by = writers(graph, "embed#grad");
  ASSERT_EQ(by.size(), 2u);
  EXPECT_EQ(by[0]->op, &kHeadLossGradOp);
  EXPECT_TRUE(by[0]->run.first_writer);
  EXPECT_EQ(by[1]->op, &kEmbeddingGradOp);
  EXPECT_FALSE(by[1]->run.first_writer);
}

TEST(Autodiff, EveryActivationIsWrittenOnceAndBeforeItIsRead) {
  for (const auto& frozen :
       {std::vector<std::string>{}, {"embed", "0."}, {".k"}, {"norm"}, {"1."}}) {
    const Graph graph = differentiated_decoder({.bias = true}, frozen);
    std::set<int> written;
    for (const Node& n : graph.pass) {
      for (Ref in : n.inputs) {
        const bool is_activation = graph[in].kind == ValueKind::kActivation;
        EXPECT_TRUE(!is_activation || written.count(in.id)) << graph[in].name;
      }
      for (Ref out : n.outputs) {
        if (!out || graph[out].kind != ValueKind::kActivation) continue;
        EXPECT_TRUE(written.insert(out.id).second) << graph[out].name;
      }
    }
  }
}

TEST(Autodiff, FreezingPrunesTheBackwardPass) {
  const Graph whole = differentiated_decoder({.tied = false});
  EXPECT_EQ(count(whole, &kAttentionGradOp), 2);
  // Embedding and first layer frozen: the walk ends at the second layer.
  const Graph half = differentiated_decoder({.tied = false}, {"embed", "0."});
  EXPECT_EQ(count(half, &kAttentionGradOp), 1);
  EXPECT_EQ(count(half, &kEmbeddingGradOp), 0);
  EXPECT_EQ(count(half, &kSwigluGradOp), 1);
  EXPECT_FALSE(half.find("0.q#grad"));
  EXPECT_TRUE(half.find("1.q#grad"));
  // Only the head: no gradient flows at all.
  const Graph head = differentiated_decoder({.tied = false}, {"embed", "0.", "1.", "2."});
  EXPECT_EQ(head.of_kind(ValueKind::kGradient).size(), 1u);
  EXPECT_EQ(count(head, &kRmsNormGradOp), 0);
  EXPECT_FALSE(writers(head, "head#grad")[0]->outputs[1]) << "dx is not wanted";
}

// The middle of three stacked weights frozen: two runs, each with its column.
TEST(Autodiff, FrozenPartSplitsTheStackedProduct) {
  const Graph graph = differentiated_decoder({.layers = 1}, {"0.k"});
  const auto q = writers(graph, "0.q#grad"), v = writers(graph, "0.v#grad");
  ASSERT_EQ(q.size(), 1u);
  ASSERT_EQ(v.size(), 1u);
  EXPECT_NE(q[0], v[0]);
  EXPECT_EQ(q[0]->as<LinearAttr>().column, 0);
  EXPECT_EQ(v[0]->as<LinearAttr>().column, 32 + 16);
  EXPECT_EQ(q[0]->as<LinearAttr>().parts, 1);
  const Graph together = differentiated_decoder({.layers = 1});
  EXPECT_EQ(writers(together, "0.q#grad")[0], writers(together, "0.v#grad")[0]);
}

TEST(Autodiff, NothingToTrainIsAUserError) {
  Graph graph;
  const Ref losses = trace_decoder(&graph, {});
  freeze(&graph, "");
  EXPECT_THROW(add_backward(&graph, losses, Dtype::kF32), UserError);
}

TEST(Autodiff, BackwardCostsTwiceTheForward) {
  Graph forward;
  trace_decoder(&forward, {.tied = false});
  double once = 0, all = 0;
  for (const Node& n : forward.pass) once += n.op == &kAttentionOp ? 0 : node_flops(forward, n);
  const Graph graph = differentiated_decoder({.tied = false});
  for (const Node& n : graph.pass) {
    const bool attention = n.op == &kAttentionOp || n.op == &kAttentionGradOp;
    all += attention ? 0 : node_flops(graph, n);
  }
  EXPECT_EQ(all, 3 * once);
}

TEST(Autodiff, LossSumIsTheResult) {
  const Graph graph = differentiated_decoder({});
  ASSERT_TRUE(graph.find("loss_sum"));
  EXPECT_EQ(graph[*graph.find("loss_sum")].dtype, Dtype::kI64);  // limbs of an exact sum
  EXPECT_EQ(graph[*graph.find("loss_sum")].kind, ValueKind::kResult);
  EXPECT_EQ(graph.pass.back().op, &kLossSumOp);
}

}  // namespace
}  // namespace weft
