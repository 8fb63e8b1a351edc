// tests/parallel/dropout_test.cpp: a rank's dropout columns match the logical tensor's.
#include "graph/ops/dropout.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "graph/autodiff.h"
#include "parallel/tensor_parallel.h"
#include "tests/graph/decoder_graph.h"

namespace weft {
namespace {

constexpr int64_t kGateWidth = 24, kHidden = 8;

// A feed-forward layer with dropout of its inner columns, which are cut, and of its result, which
// is whole. stacked: of gate and up instead.
Graph dropout_graph(const TensorParallel& mesh, bool stacked = false) {
  Graph graph;
  Builder g(&graph, Dtype::kF32);
  const Ref ids = g.input("ids", {2, 3}, Dtype::kI32);
  const Ref rows = g.input("rows", {2, 2}, Dtype::kI64);
  const auto drop = [&](Ref x, int64_t site) {
    return ops::dropout(g, x, {.rate = 0.1, .site = site, .rows = rows});
  };
  const Ref x = ops::embedding(g, ids, g.parameter("embed", {5, kHidden}), -1);
  const Ref gate = g.parameter("gate", {kGateWidth, kHidden}),
            up = g.parameter("up", {kGateWidth, kHidden});
  Ref gate_up = ops::linear(g, x, {gate, up}, {});
  if (stacked) gate_up = drop(gate_up, 2);
  const Ref h = drop(ops::swiglu(g, gate_up), 0);
  const Ref y = drop(ops::linear(g, h, {g.parameter("down", {kHidden, kGateWidth})}, {}), 1);
  add_backward(&graph, ops::head_loss(g, y, g.parameter("head", {5, kHidden}), ids, 2),
               Dtype::kF32);
  apply_tensor_parallel(&graph, {{"gate", {0, 1}}, {"up", {0, 1}}, {"down", {1, 1}}}, mesh);
  return graph;
}

TEST(DropoutColumns, StartAtTheRanksFirstColumn) {
  for (const bool exact : {false, true}) {
    for (const int tp : {1, 2, 4}) {
      for (int rank = 0; rank < tp; ++rank) {
        const Graph graph = dropout_graph({tp, rank, exact ? 4 : tp, exact});
        int cut = 0, whole = 0;
        for (const Node& node : graph.pass) {
          if (node.op != &kDropoutOp) continue;
          const auto& attr = node.as<DropoutAttr>();
          const int64_t columns = graph[node.outputs[0]].shape.back();
          const bool is_cut = attr.site == 0;
          EXPECT_EQ(columns, is_cut ? kGateWidth / tp : kHidden);
          EXPECT_EQ(attr.first_column, is_cut ? rank * kGateWidth / tp : 0);
          ++(is_cut ? cut : whole);
        }
        EXPECT_EQ(cut, 2);  // forward and gradient
        EXPECT_EQ(whole, 2);
      }
    }
  }
}

// A rank has columns of gate, then of up: not a contiguous range of the logical tensor.
TEST(DropoutColumns, OfAStackedProductAreRejected) {
  EXPECT_NO_THROW(dropout_graph({1, 0, 1, false}, true));
  try {
    dropout_graph({2, 1, 2, false}, true);
    FAIL() << "nothing was thrown";
  } catch (const BugError& e) {
    const std::string text = e.what();
    EXPECT_NE(text.find("[dropout]"), std::string::npos) << text;
    EXPECT_NE(text.find("stacked"), std::string::npos) << text;
  }
}

}  // namespace
}  // namespace weft
