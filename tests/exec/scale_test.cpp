// tests/exec/scale_test.cpp: scaled values in a model, in place where nobody else reads them.
#include "graph/ops/scale.h"

#include "graph/ops/add.h"
#include "graph/ops/linear.h"
#include "tests/exec/traced_model.h"

namespace weft {
namespace {

using testing::kChannels;
using testing::nodes_of;
using testing::traced;
using testing::TracedModel;

Ref scaled(Builder& g, Ref x) {
  const Ref a = ops::linear(g, x, {g.parameter("a", {kChannels, kChannels})}, {});
  return ops::scale(g, a, -1.5f);
}

// Two scaled copies of one value: what flows into their sum is read by both gradients.
Ref scaled_twice(Builder& g, Ref x) {
  const Ref first = ops::scale(g, x, 2.0f);  // before the other, whatever the compiler's order
  return ops::add(g, first, ops::scale(g, scaled(g, x), 0.5f));
}

TEST(ScaleGradient, IsTheDifference) {
  TracedModel(traced(scaled), ref_kernels()).expect_differences();
  TracedModel(traced(scaled_twice), ref_kernels()).expect_differences();
}

TEST(ScaleGradient, WorksInPlaceWhereNobodyElseReads) {
  const auto offsets = [](const testing::Body& body) {
    const Graph graph = traced(body);
    const MemoryPlan plan = plan_memory(graph, 2);
    std::vector<bool> in_place;
    for (const Node* n : nodes_of(graph, &kScaleOp)) {
      in_place.push_back(plan.places[static_cast<size_t>(n->inputs[0].id)].offset ==
                         plan.places[static_cast<size_t>(n->outputs[0].id)].offset);
    }
    return in_place;
  };
  EXPECT_EQ(offsets(scaled), (std::vector<bool>{true, true}));
  // Traced: 2 x, while x is read again; -1.5 a; 0.5 of it. Back: 0.5 dy, while 2 dy is to come;
  // -1.5 of that; 2 dy.
  EXPECT_EQ(offsets(scaled_twice), (std::vector<bool>{false, true, true, false, true, true}));
}

}  // namespace
}  // namespace weft
