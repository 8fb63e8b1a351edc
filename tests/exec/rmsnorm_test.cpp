// tests/exec/rmsnorm_test.cpp: RMSNorm with and without an offset in a small model that is run.
#include "graph/ops/rmsnorm.h"

#include <gtest/gtest.h>

#include "tests/exec/feed_forward_run.h"

namespace weft {
namespace {

using testing::all_kernels;
using testing::FeedForward;

// The activation is a norm with a weight of its own.
FeedForward with_norm(int weight_offset) {
  FeedForward s{.up_width = 16};
  s.activation = [=](Builder& g, Ref x) {
    return ops::rmsnorm(g, x, Ref{}, g.parameter("middle", {16}), 1e-5f, weight_offset).y;
  };
  return s;
}

// With recomputation y is made again by rmsnorm_apply, which has the same offset.
TEST(RmsNormRun, GradientsAreTheDifferencesAndBitsAreKept) {
  for (const int weight_offset : {0, 1}) {
    FeedForward s = with_norm(weight_offset);
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

TEST(RmsNormRun, AnOffsetChangesTheLoss) {
  EXPECT_NE(testing::run_feed_forward(with_norm(0), cpu_kernels()).loss,
            testing::run_feed_forward(with_norm(1), cpu_kernels()).loss);
}

TEST(RmsNormRun, OtherOffsetsAreRefused) {
  Graph graph;
  EXPECT_THROW(testing::trace_feed_forward(&graph, with_norm(2)), BugError);
}

}  // namespace
}  // namespace weft
