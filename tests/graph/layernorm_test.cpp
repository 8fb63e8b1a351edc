// tests/graph/layernorm_test.cpp: the rule of layernorm: shapes, and which gradients are computed.
#include "graph/ops/layernorm.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "tests/graph/feed_forward_graph.h"

namespace weft {
namespace {

using testing::count;
using testing::differentiated;
using testing::FeedForward;
using testing::writers;

TEST(LayerNormRule, ShapesThatDoNotFitAreNamed) {
  Graph graph;
  Builder g(&graph, Dtype::kF32);
  const Ref x = g.input("x", {2, 3, 8}, Dtype::kF32), other = g.input("o", {2, 4, 8}, Dtype::kF32);
  const Ref ok = g.parameter("ok", {8}), wide = g.parameter("wide", {9});
  const auto message = [&](Ref residual, Ref weight, Ref bias) -> std::string {
    try {
      ops::layernorm(g, x, residual, weight, bias, 1e-5f);
    } catch (const BugError& e) {
      return e.what();
    }
    return "";
  };
  EXPECT_NE(message({}, wide, {}).find("weight of its last dim, got (9)"), std::string::npos);
  EXPECT_NE(message({}, ok, wide).find("bias of its last dim, got (9)"), std::string::npos);
  EXPECT_NE(message(other, ok, ok).find("residual of its shape, got (2, 4, 8)"), std::string::npos);
  EXPECT_EQ(message({}, ok, {}), "");
}

// The gradient's outputs are dx and the needed gradients; the executor uses the last one to decide
// whether to accumulate, so none may be absent.
TEST(LayerNormRule, FrozenParametersHaveNoOutput) {
  struct Case {
    bool bias;
    std::vector<std::string> frozen, wanted;
  };
  const std::vector<Case> cases = {
      {true, {}, {"norm2.weight#grad", "norm2.bias#grad"}},
      {false, {}, {"norm2.weight#grad"}},
      {true, {"norm2.bias"}, {"norm2.weight#grad"}},
      {true, {"norm2.weight"}, {"norm2.bias#grad"}},
      {true, {"norm2"}, {}},
  };
  for (const Case& c : cases) {
    const Graph graph = differentiated(FeedForward{.bias = c.bias}, c.frozen);
    const auto is_second = [&](const Node& n) {
      return n.op == &kLayerNormGradOp && graph[n.inputs[2]].name == "norm2.weight";
    };
    const auto found = std::find_if(graph.pass.begin(), graph.pass.end(), is_second);
    ASSERT_NE(found, graph.pass.end());
    std::vector<std::string> names;
    for (size_t k = 1; k < found->outputs.size(); ++k)
      names.push_back(graph[found->outputs[k]].name);
    EXPECT_EQ(names, c.wanted);
    EXPECT_TRUE(found->run.first_writer);
  }
}

// x goes into the first norm and into the second one's sum: the first one's gradient includes the
// sum's.
TEST(LayerNormRule, TheSumsGradientIsIncluded) {
  const Graph graph = differentiated(FeedForward{});
  EXPECT_EQ(count(graph, &kLayerNormGradOp), 2);
  const auto by = writers(graph, "norm1.weight#grad");
  ASSERT_EQ(by.size(), 1u);
  EXPECT_TRUE(by[0]->as<LayerNormAttr>().has_dsum);
  const Node& embedding = testing::only(graph, &kEmbeddingGradOp);
  EXPECT_EQ(embedding.inputs[0], by[0]->outputs[0]);
  EXPECT_FALSE(writers(graph, "norm2.weight#grad")[0]->as<LayerNormAttr>().has_dsum);
}

// Nobody reads y: the sum's gradient still reaches x and the residual.
TEST(LayerNormRule, AnUnreadNormPassesTheSumsGradientOn) {
  Graph graph;
  Builder g(&graph, Dtype::kF32);
  const Ref ids = g.input("ids", {1, 2}, Dtype::kI32), targets = g.input("t", {1, 2}, Dtype::kI32);
  const Ref a = ops::embedding(g, ids, g.parameter("a", {5, 4}), -1);
  const Ref b = ops::embedding(g, ids, g.parameter("b", {5, 4}), -1);
  const Ref sum = ops::layernorm(g, a, b, g.parameter("w", {4}), {}, 1e-5f).sum;
  add_backward(&graph, ops::head_loss(g, sum, g.parameter("head", {5, 4}), targets, 2),
               Dtype::kF32);
  EXPECT_EQ(count(graph, &kLayerNormGradOp), 0);
  EXPECT_EQ(writers(graph, "a#grad").size(), 1u);
  EXPECT_EQ(writers(graph, "b#grad").size(), 1u);
}

}  // namespace
}  // namespace weft
