// tests/base/random_test.cpp: Philox against its published answers; the shape of the draws.
#include "base/random.h"

#include <gtest/gtest.h>

#include <cmath>

namespace weft {
namespace {

// From the known-answer file of Random123, philox4x32 with ten rounds.
TEST(Random, PublishedAnswers) {
  EXPECT_EQ(philox(0, 0, 0), (RandomBlock{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(philox(~uint64_t{0}, ~uint64_t{0}, ~uint64_t{0}),
            (RandomBlock{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(philox(0x299f31d0a4093822, 0x0370734413198a2e, 0x85a308d3243f6a88),
            (RandomBlock{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(Random, UniformFillsTheUnitInterval) {
  double sum = 0, least = 1, most = 0;
  for (uint64_t i = 0; i < 20000; ++i) {
    const double v = uniform_at(7, 3, i);
    ASSERT_GE(v, 0.0);
    ASSERT_LT(v, 1.0);
    sum += v;
    least = std::min(least, v);
    most = std::max(most, v);
  }
  EXPECT_NEAR(sum / 20000, 0.5, 0.01);  // five standard errors of the mean
  EXPECT_LT(least, 1e-3);
  EXPECT_GT(most, 1 - 1e-3);
}

TEST(Random, NormalHasItsMoments) {
  double sum = 0, squares = 0, fourth = 0;
  constexpr int kDraws = 40000;
  for (uint64_t i = 0; i < kDraws; ++i) {
    const double v = normal_at(11, 5, i);
    ASSERT_TRUE(std::isfinite(v));
    sum += v;
    squares += v * v;
    fourth += v * v * v * v;
  }
  EXPECT_NEAR(sum / kDraws, 0.0, 0.025);
  EXPECT_NEAR(squares / kDraws, 1.0, 0.04);
  EXPECT_NEAR(fourth / kDraws, 3.0, 0.3);
}

TEST(Random, ADrawDependsOnItsPositionOnly) {
  EXPECT_EQ(uniform_at(1, 2, 3), uniform_at(1, 2, 3));
  EXPECT_NE(uniform_at(1, 2, 3), uniform_at(1, 2, 4));
  EXPECT_NE(uniform_at(1, 2, 3), uniform_at(1, 3, 3));
  EXPECT_NE(uniform_at(1, 2, 3), uniform_at(2, 2, 3));
}

}  // namespace
}  // namespace weft
