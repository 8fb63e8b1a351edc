// tests/exec/qk_norm_test.cpp: the norm of q's and k's heads in a small model that is run, cut and
// placed in memory.
#include "graph/ops/qk_norm.h"

#include <gtest/gtest.h>

#include "parallel/tensor_parallel.h"
#include "tests/exec/feed_forward_run.h"

namespace weft {
namespace {

using testing::all_kernels;
using testing::FeedForward;
using testing::only;
using testing::RunResult;

// The activation reads q, k and v of two, one and one heads.
constexpr HeadShape kNormedHeads{2, 1, 4};
FeedForward with_qk_norm(int weight_offset) {
  FeedForward s{.up_width = 16};
  s.activation = [=](Builder& g, Ref x) {
    return ops::qk_norm(g, x, g.parameter("norm.q", {4}), g.parameter("norm.k", {4}), kNormedHeads,
                        1e-5f, weight_offset);
  };
  return s;
}

TEST(QkNormRun, GradientsAreTheDifferencesAndBitsAreKept) {
  for (const int weight_offset : {0, 1}) {
    FeedForward s = with_qk_norm(weight_offset);
    testing::expect_gradients_are_differences(s, ref_kernels());
    testing::expect_gradients_are_differences(s, cpu_kernels());
    for (const Kernels* k : all_kernels()) {
      for (const Dtype compute : {Dtype::kF32, Dtype::kBf16}) {
        s.compute = compute;
        testing::expect_bits_are_kept(s, *k);
      }
    }
  }
}

// Also in the second pass, which accumulates.
TEST(QkNormRun, FreezingChangesNoOtherGradient) {
  for (const Kernels* k : all_kernels()) {
    const RunResult all = run_feed_forward(with_qk_norm(1), *k);
    ASSERT_EQ(all.gradients.count("norm.q#grad"), 1u);
    for (const char* frozen : {"norm.q", "norm.k", "up"}) {
      const RunResult some = run_feed_forward(with_qk_norm(1), *k, {.frozen = {frozen}});
      EXPECT_EQ(some.gradients.size() + 1, all.gradients.size());
      for (const auto& [name, gradient] : some.gradients) {
        EXPECT_EQ(gradient, all.gradients.at(name)) << k->name << " " << frozen << " " << name;
      }
    }
  }
}

// The gradient reads qkv, which is kept; without a gradient it is overwritten.
TEST(QkNormRun, OverwritesItsInputWhereNothingReadsItLater) {
  for (const bool learns : {false, true}) {
    Graph graph;
    if (learns) {
      graph = testing::differentiated(with_qk_norm(0));
    } else {
      testing::trace_feed_forward(&graph, with_qk_norm(0));
    }
    const Plan plan = make_plan(graph, {&ref_kernels(), 1, 2});
    const Node& node = only(plan.graph, &kQkNormOp);
    const auto place = [&](Ref r) { return plan.memory.places[static_cast<size_t>(r.id)].offset; };
    EXPECT_EQ(place(node.inputs[0]) == place(node.outputs[0]), !learns);
  }
}

TEST(QkNormRun, WrongOperandsAreRefused) {
  Graph graph;
  Builder g(&graph, Dtype::kF32);
  const Ref x = g.input("x", {1, 2, 16}, Dtype::kF32);
  const Ref a = g.parameter("a", {4}), b = g.parameter("b", {4}), c = g.parameter("c", {5});
  EXPECT_THROW(ops::qk_norm(g, x, a, c, kNormedHeads, 1e-5f), BugError);
  EXPECT_THROW(ops::qk_norm(g, x, a, a, kNormedHeads, 1e-5f), BugError);
  EXPECT_THROW(ops::qk_norm(g, x, a, b, {2, 2, 4}, 1e-5f), BugError);
  EXPECT_THROW(ops::qk_norm(g, x, a, b, kNormedHeads, 1e-5f, 2), BugError);
  EXPECT_TRUE(ops::qk_norm(g, x, a, b, kNormedHeads, 1e-5f));
}

}  // namespace
}  // namespace weft
