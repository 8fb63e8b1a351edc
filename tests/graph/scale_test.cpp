// tests/graph/scale_test.cpp: a value times a constant, and its gradient.
#include "graph/ops/scale.h"

#include <gtest/gtest.h>

#include <limits>

#include "base/error.h"
#include "graph/autodiff.h"
#include "tests/graph/decoder_graph.h"

namespace weft {
namespace {

TEST(ScaleRule, GradientIsTheSameOperation) {
  Graph graph;
  Builder g(&graph, Dtype::kF32);
  const Ref ids = g.input("ids", {1, 2}, Dtype::kI32);
  const Ref x = ops::embedding(g, ids, g.parameter("embed", {5, 4}), -1);
  const Ref y = ops::scale(g, x, 0.125f);
  EXPECT_EQ(g.shape(y), (Shape{1, 2, 4}));
  add_backward(&graph, ops::head_loss(g, y, g.parameter("head", {5, 4}), ids, 2), Dtype::kF32);
  ASSERT_EQ(testing::count(graph, &kScaleOp), 2);
  for (const Node& node : graph.pass) {
    if (node.op != &kScaleOp) continue;
    EXPECT_EQ(node.as<ScaleAttr>().factor, 0.125f);
    EXPECT_EQ(node.inputs.size(), 1u);  // the gradient reads only dy
  }
}

TEST(ScaleRule, AFactorIsFinite) {
  Graph graph;
  Builder g(&graph, Dtype::kF32);
  const Ref x = g.input("x", {2, 3, 8}, Dtype::kF32);
  EXPECT_THROW(ops::scale(g, x, std::numeric_limits<float>::infinity()), BugError);
  EXPECT_THROW(ops::scale(g, x, std::numeric_limits<float>::quiet_NaN()), BugError);
}

}  // namespace
}  // namespace weft
