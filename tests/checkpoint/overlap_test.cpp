// tests/checkpoint/overlap_test.cpp: overlaps among many regions, against comparing every pair.
#include "checkpoint/overlap.h"

#include <gtest/gtest.h>

#include <random>

namespace weft {
namespace {

std::vector<const Region*> pointers(const std::vector<Region>& regions) {
  std::vector<const Region*> list;
  for (const Region& r : regions) list.push_back(&r);
  return list;
}

Region box(Shape offset, Shape extent) {
  const int64_t n = num_elements(extent);
  return {std::move(offset), std::move(extent), 0, n};
}

bool any_pair_overlaps(const std::vector<Region>& regions) {
  for (size_t i = 0; i < regions.size(); ++i) {
    for (size_t j = 0; j < i; ++j) {
      if (regions_overlap(regions[i], regions[j])) return true;
    }
  }
  return false;
}

TEST(Overlap, RandomRegionsAsByEveryPair) {
  std::mt19937 random(5);
  const auto in = [&](int64_t low, int64_t high) {
    return std::uniform_int_distribution<int64_t>(low, high)(random);
  };
  int found = 0, none = 0;
  for (int round = 0; round < 20000; ++round) {
    Shape shape(static_cast<size_t>(in(0, 3)));
    for (int64_t& extent : shape) extent = in(1, 9);
    std::vector<Region> regions;
    for (int64_t i = in(0, 5); i > 0; --i) {
      Region r;
      for (const int64_t extent : shape) {
        r.offset.push_back(in(0, extent - 1));
        r.extent.push_back(in(0, std::min<int64_t>(3, extent - r.offset.back())));
      }
      r.flat_begin = in(0, num_elements(r.extent));
      r.flat_end = in(r.flat_begin, num_elements(r.extent));
      regions.push_back(std::move(r));
    }
    const auto pair = find_overlap(pointers(regions), shape);
    ASSERT_EQ(pair.has_value(), any_pair_overlaps(regions)) << "round " << round;
    (pair ? found : none) += 1;
    if (!pair) continue;
    ASSERT_LT(pair->first, pair->second);
    ASSERT_TRUE(regions_overlap(regions[pair->first], regions[pair->second]));
  }
  EXPECT_GT(found, 300);
  EXPECT_GT(none, 300);
}

// Comparing every pair would take minutes.
TEST(Overlap, ManyCutsOfEachKind) {
  constexpr int64_t n = 60000, side = 300;
  std::vector<Region> rows, columns, ranges, grid;
  for (int64_t i = 0; i < n; ++i) {
    rows.push_back(box({i, 0}, {1, n}));
    columns.push_back(box({0, i}, {n, 1}));
    ranges.push_back({{0, 0}, {n, n}, i * n, (i + 1) * n});
  }
  for (int64_t i = 0; i < side * side; ++i)
    grid.push_back(box({i / side * 200, i % side * 200}, {200, 200}));
  for (std::vector<Region>* list : {&rows, &columns, &ranges, &grid}) {
    EXPECT_FALSE(find_overlap(pointers(*list), {n, n}));
    list->push_back(box({17, 23}, {1, 1}));
    const auto pair = find_overlap(pointers(*list), {n, n});
    ASSERT_TRUE(pair.has_value());
    EXPECT_EQ(pair->second, list->size() - 1);
  }
}

}  // namespace
}  // namespace weft
