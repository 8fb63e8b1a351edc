// tests/exec/op_binding_test.cpp: every operation is bound, and unbound ones are rejected.
#include "exec/op_binding.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <regex>
#include <set>

#include "base/error.h"
#include "base/file.h"
#include "exec/plan.h"
#include "graph/ops/linear.h"
#include "graph/ops/swiglu.h"

namespace weft {
namespace {

// The names of rules in the headers of graph/ops.
std::set<std::string> declared_rules() {
  std::set<std::string> found;
  for (const auto& entry : std::filesystem::directory_iterator("src/graph/ops")) {
    if (entry.path().extension() != ".h") continue;
    const std::string text = read_file(entry.path());
    const std::regex line("extern const OpRule ([^;]*);"), name("k[A-Za-z]+Op");
    for (std::sregex_iterator l(text.begin(), text.end(), line), end; l != end; ++l) {
      const std::string names = (*l)[1];
      for (std::sregex_iterator n(names.begin(), names.end(), name); n != end; ++n)
        found.insert(n->str());
    }
  }
  return found;
}

TEST(Bindings, ThereIsOneForEveryRule) {
  const std::set<std::string> rules = declared_rules();
  EXPECT_TRUE(rules.contains("kSwigluGradOp"));
  std::set<std::string> bound;
  for (const OpBinding& b : all_bindings()) bound.insert(op_name(b.op));
  EXPECT_EQ(bound.size(), all_bindings().size()) << "two operations of one name";
  EXPECT_EQ(bound.size(), rules.size());
}

TEST(Bindings, AnOperationWithoutOneIsRefused) {
  OpRule odd = kSwigluOp;
  odd.name = "odd";
  Graph graph;
  const Ref x = graph.add({"x", {1, 2, 4}, Dtype::kF32, ValueKind::kInput});
  const Ref y = graph.add({"y", {1, 2, 2}, Dtype::kF32, ValueKind::kActivation});
  graph.pass.push_back({&odd, {x}, {y}});
  try {
    make_plan(std::move(graph), {&ref_kernels(), 1, 1, 1, 1});
    FAIL();
  } catch (const BugError& e) {
    EXPECT_NE(std::string(e.what()).find("[odd] has no binding"), std::string::npos) << e.what();
  }
}

// The bias is frozen, and with it the last output: the weight's gradient is accumulated anyway.
TEST(Accumulates, LooksAtPresentOutputsOnly) {
  Graph graph;
  const Ref p = graph.add({"p", {4}, Dtype::kF32, ValueKind::kParameter});
  const Ref kept = graph.add({"p#grad", {4}, Dtype::kF32, ValueKind::kGradient, p});
  const Ref leaf = graph.add({"p#grad.leaf", {4}, Dtype::kF32, ValueKind::kActivation, p});
  const Ref dx = graph.add({"dx", {4}, Dtype::kF32, ValueKind::kActivation});
  const std::vector<std::byte*> nothing(graph.values.size(), nullptr);
  const View view{graph, nothing};
  StepScalars later;
  later.pass = 1;
  EXPECT_TRUE(accumulates(view, {&kBiasGradOp, {}, {dx, kept, Ref{}}})(later));
  EXPECT_FALSE(accumulates(view, {&kBiasGradOp, {}, {dx, kept, Ref{}}})({}));
  EXPECT_FALSE(accumulates(view, {&kBiasGradOp, {}, {dx, leaf}})(later));
  EXPECT_FALSE(accumulates(view, {&kBiasGradOp, {}, {dx, Ref{}}})(later));
  EXPECT_THROW(accumulates(view, {&kBiasGradOp, {}, {kept, leaf}}), BugError);
}

}  // namespace
}  // namespace weft
