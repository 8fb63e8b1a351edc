// tests/exec/add_test.cpp: a gradient that flows into two addends is not overwritten before both
// have read it.
#include "graph/ops/add.h"

#include "base/error.h"
#include "graph/ops/linear.h"
#include "graph/ops/rmsnorm.h"
#include "graph/ops/rope.h"
#include "kernel/cpu/level.h"
#include "tests/exec/traced_model.h"

namespace weft {
namespace {

using testing::kChannels;
using testing::kPositions;
using testing::nodes_of;
using testing::traced;
using testing::TracedModel;

Ref weight(Builder& g, const char* name) { return g.parameter(name, {kChannels, kChannels}); }

// The gradients of both norms may work in place on their incoming gradient, which is one value.
Ref two_norms(Builder& g, Ref x) {
  const Ref a = ops::linear(g, x, {weight(g, "a")}, {});
  const Ref left = ops::rmsnorm(g, a, Ref{}, g.parameter("left", {kChannels}), 1e-5f).y;
  const Ref b = ops::linear(g, x, {weight(g, "b")}, {});
  const Ref right = ops::rmsnorm(g, b, Ref{}, g.parameter("right", {kChannels}), 1e-5f).y;
  return ops::add(g, left, right);
}

// Sums of sums, of a value with itself, and of one that others read too.
Ref nested(Builder& g, Ref x) {
  const Ref s = two_norms(g, x);
  const Ref twice = ops::add(g, s, s);
  const Ref c = ops::linear(g, twice, {weight(g, "c")}, {});
  return ops::add(g, ops::add(g, c, x), twice);
}

TEST(AddGradient, IsTheDifference) {
  TracedModel(traced(two_norms), ref_kernels()).expect_differences();
  TracedModel(traced(nested), ref_kernels()).expect_differences();
}

TEST(AddGradient, EveryLevelAgreesWithRef) {
  const auto want = TracedModel(traced(nested), ref_kernels()).gradients();
  for (const char* level : available_levels()) {
    const auto got = TracedModel(traced(nested), *find_kernels(level)).gradients();
    ASSERT_EQ(got.size(), want.size());
    for (const auto& [name, gradient] : want) {
      for (size_t i = 0; i < gradient.size(); ++i) {
        EXPECT_NEAR(got.at(name)[i], gradient[i], 1e-5) << level << " " << name << " " << i;
      }
    }
  }
}

// No separate node: the sum's gradient is passed on, and only the last of its readers works in
// place.
TEST(AddGradient, OnlyTheLastReaderWorksInPlace) {
  const Graph graph = traced(two_norms);
  const auto norms = nodes_of(graph, &kRmsNormGradOp);
  ASSERT_EQ(norms.size(), 2u);
  const Ref shared = norms[0]->inputs[0];
  ASSERT_EQ(norms[1]->inputs[0], shared);
  const MemoryPlan plan = plan_memory(graph, 2);
  const auto offset = [&](Ref r) { return plan.places[static_cast<size_t>(r.id)].offset; };
  EXPECT_NE(offset(norms[0]->outputs[0]), offset(shared));
  EXPECT_EQ(offset(norms[1]->outputs[0]), offset(shared));
}

// An operation that only works in place is rejected where the gradient is still read, and accepted
// where it is the last reader: in backward order the other addend's nodes come first when it was
// traced last.
TEST(AddGradient, InPlaceOnlyOpsAreRejectedWhereOthersRead) {
  const auto model = [](bool rope_first) {
    return traced([=](Builder& g, Ref x) {
      const Ref cosine = g.constant("cosine", {kPositions, 2}, Dtype::kF32);
      const Ref sine = g.constant("sine", {kPositions, 2}, Dtype::kF32);
      Ref a, b;
      const auto rotate = [&] {
        const Ref qkv = ops::linear(g, x, {weight(g, "a")}, {});
        a = ops::rope(g, qkv, cosine, sine, Ref{}, {.heads = 0, .kv_heads = 1, .head_dim = 4});
      };
      if (rope_first) rotate();
      b = ops::linear(g, x, {weight(g, "b")}, {});
      if (!rope_first) rotate();
      return ops::add(g, a, b);
    });
  };
  EXPECT_NO_THROW(plan_memory(model(true), 2));
  EXPECT_THROW(plan_memory(model(false), 2), BugError);
}

}  // namespace
}  // namespace weft
