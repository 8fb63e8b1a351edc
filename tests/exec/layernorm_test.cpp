// tests/exec/layernorm_test.cpp: layer norms in a small model that is run.
#include <gtest/gtest.h>

#include "tests/exec/feed_forward_run.h"

namespace weft {
namespace {

using testing::all_kernels;
using testing::FeedForward;
using testing::RunResult;

TEST(LayerNormRun, GradientsAreTheDifferences) {
  for (const bool bias : {false, true}) {
    testing::expect_gradients_are_differences({.bias = bias}, ref_kernels());
    testing::expect_gradients_are_differences({.bias = bias}, cpu_kernels());
  }
}

TEST(LayerNormRun, BitsAreKept) {
  for (const Kernels* k : all_kernels()) {
    for (const Dtype compute : {Dtype::kF32, Dtype::kBf16}) {
      testing::expect_bits_are_kept({.compute = compute}, *k);
    }
  }
}

// Freezing does not change other gradients, also in the second pass, which accumulates.
TEST(LayerNormRun, FreezingChangesNoOtherGradient) {
  for (const Kernels* k : all_kernels()) {
    const RunResult all = run_feed_forward(FeedForward{}, *k);
    EXPECT_EQ(all.gradients.size(), 8u);
    for (const char* frozen : {"norm1.bias", "norm1.weight", "norm2", "embed"}) {
      const RunResult some = run_feed_forward(FeedForward{}, *k, {.frozen = {frozen}});
      EXPECT_LT(some.gradients.size(), all.gradients.size());
      for (const auto& [name, gradient] : some.gradients) {
        EXPECT_EQ(gradient, all.gradients.at(name)) << k->name << " " << frozen << " " << name;
      }
    }
  }
}

}  // namespace
}  // namespace weft
