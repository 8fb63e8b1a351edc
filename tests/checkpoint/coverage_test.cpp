// tests/checkpoint/coverage_test.cpp: which of the wanted elements parts of an index hold.
#include "checkpoint/coverage.h"

#include <gtest/gtest.h>

namespace weft {
namespace {

// Rows [begin, end) of a tensor (8, 5).
Slice rows(const std::string& name, int64_t begin, int64_t end) {
  return {name, {8, 5}, Dtype::kF32, {begin, 0}, {end - begin, 5}};
}
StoredTensors part(const Slice& slice) {
  return {{slice.name, {slice.shape, slice.dtype, {{"f", 0, 0, region_of(slice)}}}}};
}

TEST(Coverage, IsCompleteWhenEveryWantedElementIsThere) {
  Coverage coverage({rows("a", 2, 6), rows("b", 0, 8)});
  EXPECT_FALSE(coverage.is_complete());
  EXPECT_EQ(coverage.fault(), "tensor \"a\": 0 elements are there, 20 are wanted");
  coverage.add(part(rows("a", 0, 4)));
  coverage.add(part(rows("a", 4, 8)));
  coverage.add(part(rows("c", 0, 8)));
  EXPECT_FALSE(coverage.is_complete());
  EXPECT_EQ(coverage.fault(), "tensor \"b\": 0 elements are there, 40 are wanted");
  coverage.add(part(rows("b", 0, 8)));
  EXPECT_TRUE(coverage.is_complete());
  EXPECT_EQ(coverage.fault(), "");
}

TEST(Coverage, CountsFlatRangesAndColumns) {
  Slice range = rows("a", 0, 8);
  range.flat_begin = 7;
  range.flat_end = 19;
  Coverage coverage({range});
  Slice columns = {"a", {8, 5}, Dtype::kF32, {0, 0}, {8, 2}};
  coverage.add(part(columns));
  EXPECT_EQ(coverage.fault(), "tensor \"a\": 4 elements are there, 12 are wanted");
  columns = {"a", {8, 5}, Dtype::kF32, {0, 2}, {8, 3}};
  coverage.add(part(columns));
  EXPECT_EQ(coverage.fault(), "");
}

TEST(Coverage, WhatIsThereTwiceIsAFault) {
  Coverage coverage({rows("a", 0, 8)});
  coverage.add(part(rows("a", 0, 8)));
  coverage.add(part(rows("a", 7, 8)));
  EXPECT_EQ(coverage.fault(), "tensor \"a\": 45 elements are there, 40 are wanted");
}

}  // namespace
}  // namespace weft
