// tests/checkpoint/region_test.cpp: what two parts share, checked element by element.
#include "checkpoint/region.h"

#include <gtest/gtest.h>

#include <random>
#include <set>
#include <utility>
#include <vector>

namespace weft {
namespace {

using Pairs = std::set<std::pair<int64_t, int64_t>>;  // offsets in buffers of a and b

int64_t random_in(int64_t low, int64_t high, std::mt19937& random) {
  return std::uniform_int_distribution<int64_t>(low, high)(random);
}

Region random_region(const Shape& shape, std::mt19937& random) {
  Region r;
  for (const int64_t extent : shape) {
    r.offset.push_back(random_in(0, extent - 1, random));
    r.extent.push_back(random_in(1, extent - r.offset.back(), random));
  }
  const int64_t elements = num_elements(r.extent);
  r.flat_begin = random_in(0, 1, random) ? 0 : random_in(0, elements, random);
  r.flat_end = random_in(0, 1, random) ? elements : random_in(r.flat_begin, elements, random);
  return r;
}

// The offset of a logical element in the region's buffer; -1 where it is not in the region.
int64_t place_in(const Region& r, const Shape& at) {
  int64_t flat = 0;
  for (size_t i = 0; i < at.size(); ++i) {
    const int64_t inside = at[i] - r.offset[i];
    if (inside < 0 || inside >= r.extent[i]) return -1;
    flat = flat * r.extent[i] + inside;
  }
  return flat >= r.flat_begin && flat < r.flat_end ? flat - r.flat_begin : -1;
}

Pairs by_definition(const Shape& shape, const Region& a, const Region& b) {
  Pairs pairs;
  for (int64_t e = 0; e < num_elements(shape); ++e) {
    Shape at(shape.size());
    int64_t left = e;
    for (size_t i = shape.size(); i-- > 0; left /= shape[i]) at[i] = left % shape[i];
    const int64_t from = place_in(a, at), to = place_in(b, at);
    if (from >= 0 && to >= 0) pairs.insert({from, to});
  }
  return pairs;
}

TEST(Region, CommonRunsAreTheCommonElements) {
  std::mt19937 random(11);
  int64_t shared = 0;
  for (int i = 0; i < 20000; ++i) {
    Shape shape(static_cast<size_t>(random_in(0, 4, random)));
    for (int64_t& extent : shape) extent = random_in(1, 4, random);
    const Region a = random_region(shape, random), b = random_region(shape, random);
    const Pairs wanted = by_definition(shape, a, b);
    Pairs got;
    int64_t count = 0;
    for_each_common_run(a, b, [&](int64_t from, int64_t to, int64_t n) {
      ASSERT_GT(n, 0);
      count += n;
      for (int64_t k = 0; k < n; ++k) got.insert({from + k, to + k});
    });
    ASSERT_EQ(got, wanted) << to_string(shape) << ", case " << i;
    ASSERT_EQ(count, static_cast<int64_t>(wanted.size())) << "an element was visited twice";
    ASSERT_EQ(regions_overlap(a, b), !wanted.empty());
    shared += !wanted.empty();
  }
  EXPECT_GT(shared, 3000);
}

// A whole tensor is copied at once, and so are rows of one of its dims.
TEST(Region, RunsAreMaximal) {
  const auto runs = [](const Region& a, const Region& b) {
    int64_t count = 0;
    for_each_common_run(a, b, [&](int64_t, int64_t, int64_t) { ++count; });
    return count;
  };
  const Region whole{{0, 0, 0}, {4, 5, 6}, 0, 120};
  EXPECT_EQ(runs(whole, whole), 1);
  EXPECT_EQ(runs(whole, {{1, 0, 0}, {2, 5, 6}, 0, 60}), 1);
  EXPECT_EQ(runs(whole, {{0, 1, 0}, {4, 2, 6}, 0, 48}), 4);
  EXPECT_EQ(runs(whole, {{0, 0, 2}, {4, 5, 2}, 0, 40}), 20);
}

TEST(Region, FaultsAreNamed) {
  const Shape shape = {4, 6};
  EXPECT_EQ(region_fault({{0, 0}, {4, 6}, 0, 24}, shape), "");
  EXPECT_EQ(region_fault({{4, 6}, {0, 0}, 0, 0}, shape), "");
  EXPECT_EQ(region_fault({{1, 2}, {3, 4}, 12, 12}, shape), "");
  for (const Region& bad : {Region{{0}, {4, 6}, 0, 24},
                            {{0, 0}, {4}, 0, 4},
                            {{-1, 0}, {4, 6}, 0, 24},
                            {{0, 0}, {4, -1}, 0, 0},
                            {{5, 0}, {0, 6}, 0, 0},
                            {{1, 0}, {4, 6}, 0, 24},
                            {{0, 1}, {4, 6}, 0, 24}}) {
    EXPECT_NE(region_fault(bad, shape).find("a box"), std::string::npos);
  }
  for (const Region& bad :
       {Region{{0, 0}, {4, 6}, -1, 24}, {{0, 0}, {4, 6}, 7, 6}, {{0, 0}, {4, 6}, 0, 25}}) {
    EXPECT_NE(region_fault(bad, shape).find("elements"), std::string::npos);
  }
}

}  // namespace
}  // namespace weft
