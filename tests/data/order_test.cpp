// tests/data/order_test.cpp: every row once, well mixed, at any size.
#include "data/order.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <vector>

namespace weft {
namespace {

std::vector<int64_t> order_of(int64_t n, uint64_t seed, int64_t epoch, bool shuffle = true) {
  const Order order(n, shuffle, seed, epoch);
  std::vector<int64_t> rows;
  for (int64_t i = 0; i < n; ++i) rows.push_back(order.at(i));
  return rows;
}

bool is_permutation_of_all(const std::vector<int64_t>& rows) {
  std::vector<bool> seen(rows.size());
  for (const int64_t r : rows) {
    if (r < 0 || r >= static_cast<int64_t>(rows.size()) || seen[static_cast<size_t>(r)])
      return false;
    seen[static_cast<size_t>(r)] = true;
  }
  return true;
}

// Pearson's correlation of position and row; both are ranks, so this is Spearman's.
double correlation(const std::vector<int64_t>& rows) {
  const double n = static_cast<double>(rows.size()), mean = (n - 1) / 2;
  double sum = 0;
  for (size_t i = 0; i < rows.size(); ++i) {
    sum += (static_cast<double>(i) - mean) * (static_cast<double>(rows[i]) - mean);
  }
  return sum / (n * (n * n - 1) / 12);
}

TEST(Order, EveryRowOnceAtAnySize) {
  for (const int64_t n : {1, 2, 3, 5, 8, 100, 8191, 8192, 8193, 131072, 131073, 300001}) {
    EXPECT_TRUE(is_permutation_of_all(order_of(n, 42, 1))) << n;
  }
}

TEST(Order, ShuffleOffIsFileOrder) {
  const auto rows = order_of(10000, 42, 3, false);
  for (size_t i = 0; i < rows.size(); ++i) ASSERT_EQ(rows[i], static_cast<int64_t>(i));
}

TEST(Order, ShuffleIsUncorrelatedWithFileOrder) {
  for (uint64_t seed = 0; seed < 20; ++seed) {
    const auto rows = order_of(100000, seed, 1);
    EXPECT_LT(std::abs(correlation(rows)), 0.05) << seed;
    // Neighbours are not neighbours in the file: 2 in n by chance.
    int64_t close = 0;
    for (size_t i = 1; i < rows.size(); ++i) close += std::abs(rows[i] - rows[i - 1]) == 1;
    EXPECT_LT(close, 20) << seed;
  }
}

TEST(Order, EachPositionIsEquallyLikelyForSmallData) {
  constexpr int kSeeds = 6000;
  for (const int64_t n : {3, 7, 10}) {
    std::vector<int> count(static_cast<size_t>(n * n));
    for (uint64_t seed = 0; seed < kSeeds; ++seed) {
      const Order order(n, true, seed, 1);
      for (int64_t i = 0; i < n; ++i) ++count[static_cast<size_t>(i * n + order.at(i))];
    }
    const double expected = double{kSeeds} / static_cast<double>(n);
    for (const int c : count) EXPECT_NEAR(c, expected, 6 * std::sqrt(expected)) << n;
  }
}

TEST(Order, EpochsAndSeedsDiffer) {
  const auto base = order_of(5000, 1, 1);
  EXPECT_EQ(base, order_of(5000, 1, 1));
  EXPECT_NE(base, order_of(5000, 1, 2));
  EXPECT_NE(base, order_of(5000, 2, 1));
}

TEST(Order, AWindowTouchesSixteenBlocks) {
  const Order order(1000000, true, 9, 1);
  std::set<int64_t> blocks;
  for (int64_t i = 0; i < Order::kBlockRows * Order::kWindowBlocks - Order::kBlockRows; ++i) {
    blocks.insert(order.at(i) / Order::kBlockRows);
  }
  EXPECT_LE(blocks.size(), 17u);
}

// The position of each of the first `count` positions of a window in file order of the window's
// blocks: the effect of the permutation inside the window.
std::vector<int64_t> places_in_window(const Order& order, int64_t window, int64_t count) {
  constexpr int64_t kRows = Order::kBlockRows * Order::kWindowBlocks;
  const std::vector<int64_t> blocks = order.blocks_from(0);
  std::vector<int64_t> places;
  for (int64_t i = 0; i < count; ++i) {
    const int64_t row = order.at(window * kRows + i), in_block = row % Order::kBlockRows;
    const auto slot = std::find(blocks.begin(), blocks.end(), row - in_block) - blocks.begin();
    EXPECT_EQ(slot / Order::kWindowBlocks, window);
    places.push_back(slot % Order::kWindowBlocks * Order::kBlockRows + in_block);
  }
  return places;
}

TEST(Order, WindowsAreShuffledDifferently) {
  constexpr int64_t kRows = Order::kBlockRows * Order::kWindowBlocks, kCount = 2000;
  const Order order(3 * kRows, true, 5, 1);
  const auto first = places_in_window(order, 0, kCount);
  for (const int64_t window : {1, 2}) {
    const auto other = places_in_window(order, window, kCount);
    int64_t same = 0;
    for (size_t i = 0; i < first.size(); ++i) same += first[i] == other[i];
    EXPECT_LT(same, 10) << "of " << kCount << " places in window " << window;
  }
}

}  // namespace
}  // namespace weft
