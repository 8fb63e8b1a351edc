// tests/base/exact_sum_test.cpp: against sums in 128-bit integers, in any order and grouping.
#include "base/exact_sum.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

namespace weft {
namespace {

__extension__ typedef __int128 Wide;

double exact(const std::vector<double>& values) {
  ExactSum sum;
  for (double v : values) sum.add(v);
  return sum.value();
}

TEST(ExactSum, KeepsWhatDoublesLose) {
  EXPECT_EQ(exact({1e300, 1.0, -1e300}), 1.0);
  EXPECT_EQ(exact({0x1p53, 1.0, 1.0}), 0x1p53 + 2);
  EXPECT_EQ(exact({1.0, 0x1p-1074, -1.0}), 0x1p-1074);
  EXPECT_EQ(exact({-3.5, 1.25}), -2.25);
  EXPECT_EQ(exact({}), 0.0);
}

TEST(ExactSum, RoundsOnceToNearestEven) {
  EXPECT_EQ(exact({1.0, 0x1p-53}), 1.0);                       // a tie, to even
  EXPECT_EQ(exact({1.0, 0x1p-53, 0x1p-1000}), 1.0 + 0x1p-52);  // just above the tie
  EXPECT_EQ(exact({1.0 + 0x1p-52, 0x1p-53}), 1.0 + 0x1p-51);
  EXPECT_EQ(exact({-1.0, -0x1p-53, -0x1p-1000}), -1.0 - 0x1p-52);
}

TEST(ExactSum, EqualsIntegerArithmetic) {
  std::mt19937_64 random(7);
  for (int round = 0; round < 200; ++round) {
    Wide sum = 0;
    std::vector<double> values;
    for (int i = 0; i < 300; ++i) {
      const int64_t v = static_cast<int64_t>(random()) >> (11 + random() % 40);
      values.push_back(static_cast<double>(v));
      sum += v;
    }
    EXPECT_EQ(exact(values), static_cast<double>(sum));
  }
}

TEST(ExactSum, OrderAndGroupingDoNotMatter) {
  std::mt19937_64 random(3);
  std::vector<double> values;
  for (int i = 0; i < 5000; ++i) {
    const double v =
        std::ldexp(static_cast<double>(random() >> 11), static_cast<int>(random() % 60) - 30);
    values.push_back(i % 3 == 0 ? -v : v);
  }
  const double whole = exact(values);
  std::shuffle(values.begin(), values.end(), random);
  EXPECT_EQ(exact(values), whole);
  ExactSum all;
  for (size_t begin = 0; begin < values.size(); begin += 700) {
    ExactSum part;
    for (size_t i = begin; i < std::min(values.size(), begin + 700); ++i) part.add(values[i]);
    part.normalize();
    for (int i = 0; i < ExactSum::kLimbs; ++i) all.limbs()[i] += part.limbs()[i];
  }
  EXPECT_EQ(all.value(), whole);
  double plain = 0;
  for (double v : values) plain += v;
  EXPECT_NE(plain, whole);  // negative control: plain doubles do round
}

TEST(ExactSum, ReportsNonFiniteAddends) {
  EXPECT_TRUE(std::isnan(exact({1.0, std::numeric_limits<double>::infinity()})));
  EXPECT_TRUE(std::isnan(exact({std::numeric_limits<double>::quiet_NaN()})));
}

}  // namespace
}  // namespace weft
