// tests/graph/add_test.cpp: sums that models trace.
#include "graph/ops/add.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "base/error.h"
#include "graph/autodiff.h"
#include "tests/graph/decoder_graph.h"

namespace weft {
namespace {

using testing::count;

TEST(AddRule, NamesBothShapes) {
  Graph graph;
  Builder g(&graph, Dtype::kF32);
  const Ref a = g.input("a", {2, 3, 8}, Dtype::kF32), b = g.input("b", {2, 3, 4}, Dtype::kF32);
  try {
    ops::add(g, a, b);
    FAIL() << "nothing was thrown";
  } catch (const BugError& e) {
    const std::string text = e.what();
    for (const char* part : {"[add]", "(2, 3, 8)", "(2, 3, 4)"})
      EXPECT_NE(text.find(part), std::string::npos) << text;
  }
  EXPECT_EQ(g.shape(ops::add(g, a, a)), (Shape{2, 3, 8}));
}

// Both addends get the sum's gradient; a frozen one gets none, and a repeated addend gets it twice.
TEST(AddRule, PassesTheGradientOn) {
  const auto trace = [](bool frozen, bool twice) {
    Graph graph;
    Builder g(&graph, Dtype::kF32);
    const Ref ids = g.input("ids", {1, 2}, Dtype::kI32);
    const Ref a = ops::embedding(g, ids, g.parameter("a", {5, 4}), -1);
    const Ref b = twice ? a : ops::embedding(g, ids, g.parameter("b", {5, 4}), -1);
    const Ref s = ops::add(g, a, b);
    const Ref losses = ops::head_loss(g, s, g.parameter("head", {5, 4}), ids, 2);
    if (frozen) testing::freeze(&graph, "b");
    add_backward(&graph, losses, Dtype::kF32);
    return graph;
  };
  const Graph both = trace(false, false);
  EXPECT_EQ(count(both, &kAddOp), 1);  // the forward one
  EXPECT_EQ(testing::writers(both, "a#grad").at(0)->inputs,
            testing::writers(both, "b#grad").at(0)->inputs);
  const Graph one = trace(true, false);
  EXPECT_TRUE(one.find("a#grad"));
  EXPECT_FALSE(one.find("b#grad"));
  const Graph same = trace(false, true);
  ASSERT_EQ(count(same, &kAddOp), 2);
  const Node& sum = *std::find_if(same.pass.rbegin(), same.pass.rend(),
                                  [](const Node& n) { return n.op == &kAddOp; });
  EXPECT_EQ(sum.inputs[0], sum.inputs[1]);
}

}  // namespace
}  // namespace weft
