// tests/graph/dropout_test.cpp: the dropout node, and when there is none.
#include "graph/ops/dropout.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "graph/autodiff.h"
#include "tests/graph/decoder_graph.h"

namespace weft {
namespace {

class DropoutBuilder : public ::testing::Test {
 protected:
  std::string bug_of(Ref x, const DropoutRule& rule) {
    try {
      ops::dropout(g_, x, rule);
    } catch (const BugError& e) {
      return e.what();
    }
    ADD_FAILURE() << "nothing was thrown";
    return "";
  }
  void expect_named(const std::string& message, std::initializer_list<const char*> parts) {
    for (const char* part : parts)
      EXPECT_NE(message.find(part), std::string::npos) << part << ": " << message;
  }

  Graph graph_;
  Builder g_{&graph_, Dtype::kF32};
  Ref x_ = g_.input("x", {2, 3, 8}, Dtype::kF32);
  Ref rows_ = g_.input("rows", {2, 2}, Dtype::kI64);
};

TEST_F(DropoutBuilder, NamesMismatches) {
  const Ref three = g_.input("three", {3, 2}, Dtype::kI64);
  const Ref flat = g_.input("flat", {2, 3}, Dtype::kF32);
  expect_named(bug_of(x_, {.rate = 1, .rows = rows_}), {"[dropout]", "[0, 1)", "1"});
  expect_named(bug_of(x_, {.rate = -0.1, .rows = rows_}), {"[dropout]", "[0, 1)", "-0.1"});
  expect_named(bug_of(x_, {.rate = 0.5}), {"[dropout]", "every row", "none"});
  expect_named(bug_of(x_, {.rate = 0.5, .rows = three}), {"[dropout]", "(2, 3, 8)", "(3, 2)"});
  expect_named(bug_of(flat, {.rate = 0.5, .rows = rows_}), {"[dropout]", "(B, T, C)", "(2, 3)"});
  for (const int64_t site : {int64_t{-1}, int64_t{65536}}) {
    expect_named(bug_of(x_, {.rate = 0.5, .site = site, .rows = rows_}), {"[dropout]", "65536"});
  }
  EXPECT_TRUE(graph_.pass.empty());
  EXPECT_NO_THROW(ops::dropout(g_, x_, {.rate = 0.5, .site = 65535, .rows = rows_}));
}

TEST_F(DropoutBuilder, ARateOfZeroAddsNoNode) {
  EXPECT_EQ(ops::dropout(g_, x_, {}), x_);
  EXPECT_TRUE(graph_.pass.empty());
}

// The same attributes, and neither the mask nor a forward value is kept for it.
TEST_F(DropoutBuilder, TheGradientReadsOnlyDyAndTheRows) {
  const Ref ids = g_.input("ids", {2, 3}, Dtype::kI32);
  const Ref x = ops::embedding(g_, ids, g_.parameter("embed", {5, 4}), -1);
  const Ref y = ops::dropout(g_, x, {.rate = 0.25, .seed = 7, .site = 9, .rows = rows_});
  EXPECT_EQ(g_.shape(y), (Shape{2, 3, 4}));
  const Ref losses = ops::head_loss(g_, y, g_.parameter("head", {5, 4}), ids, 2);
  add_backward(&graph_, losses, Dtype::kF32);
  std::vector<const Node*> nodes;
  for (const Node& n : graph_.pass) {
    if (n.op == &kDropoutOp) nodes.push_back(&n);
  }
  ASSERT_EQ(nodes.size(), 2u);
  EXPECT_EQ(nodes[0]->inputs, (std::vector<Ref>{x, rows_}));
  EXPECT_EQ(nodes[1]->inputs[1], rows_);
  EXPECT_EQ(nodes[1]->inputs.size(), 2u);
  EXPECT_EQ(nodes[1]->inputs[0], testing::writers(graph_, "head#grad").at(0)->outputs[1]);
  for (const Node* n : nodes) {
    const auto& attr = n->as<DropoutAttr>();
    EXPECT_EQ(attr.rate, 0.25);
    EXPECT_EQ(attr.seed, 7u);
    EXPECT_EQ(attr.site, 9);
    EXPECT_EQ(attr.first_column, 0);
    EXPECT_EQ(n->outputs.size(), 1u);
  }
}

}  // namespace
}  // namespace weft
