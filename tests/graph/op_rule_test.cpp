// tests/graph/op_rule_test.cpp: no rule, no graph: a missing part is rejected.
#include "graph/op_rule.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "graph/ops/add.h"
#include "graph/ops/swiglu.h"

namespace weft {
namespace {

std::string bug_of(const Graph& graph, const Node& node) {
  try {
    check_node(graph, node);
  } catch (const BugError& e) {
    return e.what();
  }
  return "";
}

class Rule : public ::testing::Test {
 protected:
  Graph graph_;
  Ref x_ = graph_.add({"x", {2, 3, 8}, Dtype::kF32, ValueKind::kActivation});
  Ref half_ = graph_.add({"half", {2, 3, 4}, Dtype::kF32, ValueKind::kActivation});
  Ref wrong_ = graph_.add({"wrong", {2, 3, 5}, Dtype::kF32, ValueKind::kActivation});
};

TEST_F(Rule, AMissingPartIsRefused) {
  ASSERT_EQ(bug_of(graph_, {&kSwigluOp, {x_}, {half_}}), "");
  OpRule rules[7];
  for (OpRule& r : rules) r = kSwigluOp;
  rules[0].shapes = nullptr;
  rules[1].place = nullptr;
  rules[2].localize = nullptr;
  rules[3].gradient = nullptr;
  rules[4].repeat = nullptr;
  rules[5].in_place = nullptr;
  rules[6].flops = nullptr;
  for (const OpRule& r : rules) {
    EXPECT_NE(bug_of(graph_, {&r, {x_}, {half_}}).find("incomplete"), std::string::npos);
  }
  EXPECT_NE(bug_of(graph_, {nullptr, {x_}, {half_}}).find("without an operation"),
            std::string::npos);
}

TEST_F(Rule, AnOutputOfAnotherShapeIsNamed) {
  const std::string bug = bug_of(graph_, {&kSwigluOp, {x_}, {wrong_}});
  for (const char* part : {"[swiglu]", "wrong", "(2, 3, 5)", "(2, 3, 4)"})
    EXPECT_NE(bug.find(part), std::string::npos) << part << ": " << bug;
  EXPECT_NE(bug_of(graph_, {&kSwigluOp, {x_}, {half_, half_}}).find("2 outputs, wanted 1"),
            std::string::npos);
}

TEST_F(Rule, AddendsMustMatch) {
  EXPECT_EQ(bug_of(graph_, {&kAddOp, {half_, half_}, {half_}}), "");
  EXPECT_NE(bug_of(graph_, {&kAddOp, {half_, wrong_}, {half_}}).find("(2, 3, 5)"),
            std::string::npos);
}

// An empty shape of a rule: the gradient of a parameter, which has as many elements.
TEST_F(Rule, AGradientMatchesItsParameter) {
  OpRule writes = kSwigluOp;
  writes.shapes = [](const Graph&, const Node&) { return std::vector<Shape>(1); };
  const Ref p = graph_.add({"p", {4, 5}, Dtype::kF32, ValueKind::kParameter});
  const Ref good = graph_.add({"p#grad", {4, 5}, Dtype::kF32, ValueKind::kGradient, p});
  const Ref bad = graph_.add({"p#bad", {4, 4}, Dtype::kF32, ValueKind::kGradient, p});
  EXPECT_EQ(bug_of(graph_, {&writes, {x_}, {good}}), "");
  EXPECT_NE(bug_of(graph_, {&writes, {x_}, {bad}}).find("its parameter (4, 5)"), std::string::npos);
  EXPECT_NE(bug_of(graph_, {&writes, {x_}, {half_}}).find("not a gradient of a parameter"),
            std::string::npos);
}

}  // namespace
}  // namespace weft
