// tests/exec/activation_test.cpp: activations in a small model that is run, cut and recomputed.
#include <gtest/gtest.h>

#include "graph/ops/geglu.h"
#include "graph/ops/gelu.h"
#include "graph/ops/relu.h"
#include "parallel/tensor_parallel.h"
#include "tests/exec/feed_forward_run.h"

namespace weft {
namespace {

using testing::all_kernels;
using testing::count;
using testing::FeedForward;
using testing::only;
using testing::run_feed_forward;

FeedForward with_gelu(bool approximate_tanh) {
  FeedForward s{.up_width = 16};
  s.activation = [=](Builder& g, Ref x) { return ops::gelu(g, x, approximate_tanh); };
  return s;
}
FeedForward with_relu() {
  FeedForward s{.up_width = 16};
  s.activation = ops::relu;
  return s;
}

FeedForward with_geglu() {
  FeedForward s{};
  s.activation = ops::geglu;
  return s;
}

void check_run(FeedForward s) {
  testing::expect_gradients_are_differences(s, ref_kernels());
  testing::expect_gradients_are_differences(s, cpu_kernels());
  for (const Kernels* k : all_kernels()) {
    for (const Dtype compute : {Dtype::kF32, Dtype::kBf16}) {
      s.compute = compute;
      testing::expect_bits_are_kept(s, *k);
    }
  }
}

// Cut columns: each rank has half of x, y and their gradients.
void expect_cut(const FeedForward& s, Op op, Op grad_op) {
  Graph graph = testing::differentiated(s);
  apply_tensor_parallel(&graph, {{"up", {0, 1}}, {"down", {1, 1}}}, {2, 1, 2, false});
  const Shape half = {s.B, s.T, s.F / 2};
  for (Op cut : {op, grad_op}) {
    const Node& node = only(graph, cut);
    for (Ref r : node.inputs) EXPECT_EQ(graph[r].shape, half) << graph[r].name;
    for (Ref r : node.outputs) EXPECT_EQ(graph[r].shape, half) << graph[r].name;
  }
}

TEST(GeluRun, GradientsAreTheDifferencesAndBitsAreKept) {
  for (const bool approximate_tanh : {false, true}) check_run(with_gelu(approximate_tanh));
}

TEST(GeluRun, ColumnsMayBeCut) { expect_cut(with_gelu(true), &kGeluOp, &kGeluGradOp); }

// y is not kept: the gradient also computes it, for the product that reads it.
TEST(GeluRun, TheGradientRecomputesTheValue) {
  Graph graph = testing::differentiated(with_gelu(false));
  recompute_cheap_values(&graph);
  EXPECT_EQ(count(graph, &kGeluOp), 1);
  const Node& gradient = only(graph, &kGeluGradOp);
  ASSERT_EQ(gradient.outputs.size(), 2u);
  EXPECT_EQ(testing::writers(graph, "down#grad").at(0)->inputs[1], gradient.outputs[1]);
}

TEST(GegluRun, GradientsAreTheDifferencesAndBitsAreKept) { check_run(with_geglu()); }

// Cut columns, over ranks and over the pieces of exact mode: each rank has half of gate_up and h.
TEST(GegluRun, ColumnsMayBeCut) {
  for (const bool is_exact : {false, true}) {
    Graph graph = testing::differentiated(with_geglu());
    apply_tensor_parallel(&graph, {{"up", {0, 1}}, {"down", {1, 1}}},
                          {2, 1, is_exact ? 4 : 2, is_exact});
    const Node& forward = only(graph, &kGegluOp);
    const Node& gradient = only(graph, &kGegluGradOp);
    for (Ref r : {forward.inputs[0], gradient.inputs[1], gradient.outputs[0]})
      EXPECT_EQ(graph[r].shape, (Shape{2, 5, 16})) << graph[r].name;
    for (Ref r : {forward.outputs[0], gradient.inputs[0]})
      EXPECT_EQ(graph[r].shape, (Shape{2, 5, 8})) << graph[r].name;
  }
}

TEST(GegluRun, TheGradientRecomputesTheValue) {
  Graph graph = testing::differentiated(with_geglu());
  recompute_cheap_values(&graph);
  EXPECT_EQ(count(graph, &kGegluOp), 1);
  const Node& gradient = only(graph, &kGegluGradOp);
  ASSERT_EQ(gradient.outputs.size(), 2u);
  EXPECT_EQ(testing::writers(graph, "down#grad").at(0)->inputs[1], gradient.outputs[1]);
}

TEST(ReluRun, GradientsAreTheDifferencesAndBitsAreKept) { check_run(with_relu()); }

TEST(ReluRun, ColumnsMayBeCut) { expect_cut(with_relu(), &kReluOp, &kReluGradOp); }

// Only y is kept of the two: y overwrites x.
TEST(ReluRun, TheValueOverwritesItsInput) {
  const Graph graph = testing::differentiated(with_relu());
  const Plan plan = make_plan(graph, {&ref_kernels(), 1, 2});
  const Node& node = only(plan.graph, &kReluOp);
  const auto place = [&](Ref r) { return plan.memory.places[static_cast<size_t>(r.id)].offset; };
  EXPECT_EQ(place(node.inputs[0]), place(node.outputs[0]));
}

}  // namespace
}  // namespace weft
