// tests/data/pack_test.cpp: no token lost, nothing over capacity, little padding; buckets.
#include "data/pack.h"

#include <gtest/gtest.h>

#include <random>

#include "data/batches.h"

namespace weft {
namespace {

TEST(Pack, EveryTokenOnceAndWithinCapacity) {
  std::mt19937 random(3);
  for (int trial = 0; trial < 200; ++trial) {
    const auto capacity = static_cast<int64_t>(1 + random() % 64);
    std::vector<int64_t> lengths(random() % 300);
    int64_t total = 0;
    for (int64_t& n : lengths) total += n = static_cast<int64_t>(random() % 100);
    std::vector<std::vector<int>> seen(lengths.size());
    for (size_t i = 0; i < lengths.size(); ++i) seen[i].resize(static_cast<size_t>(lengths[i]));
    int64_t packed_total = 0;
    const auto packed = pack_rows(lengths, capacity);
    for (const PackedRow& row : packed) {
      int64_t used = 0;
      for (const Segment& s : row) {
        ASSERT_GT(s.length, 0);
        used += s.length;
        for (int64_t t = s.begin; t < s.begin + s.length; ++t) {
          ++seen[static_cast<size_t>(s.row)][static_cast<size_t>(t)];
        }
      }
      ASSERT_LE(used, capacity);
      packed_total += used;
    }
    ASSERT_EQ(packed_total, total);
    for (const auto& row : seen) {
      for (const int count : row) ASSERT_EQ(count, 1);
    }
  }
}

TEST(Pack, IsTight) {
  std::mt19937 random(4);
  std::vector<int64_t> lengths(4096);
  int64_t total = 0;
  for (int64_t& n : lengths) total += n = static_cast<int64_t>(10 + random() % 700);
  const auto packed = pack_rows(lengths, 1024);
  const double efficiency = static_cast<double>(total) / static_cast<double>(packed.size() * 1024);
  EXPECT_GT(efficiency, 0.99);
  EXPECT_EQ(pack_rows({5, 3, 5, 3}, 8).size(), 2u);  // 5 + 3, twice
}

// Both sides hold every pair once, within both capacities; empty pairs are skipped.
TEST(PackPairs, EveryPairOnceAndWithinBothCapacities) {
  std::mt19937 random(5);
  for (int trial = 0; trial < 200; ++trial) {
    const PairLength capacity{static_cast<int64_t>(1 + random() % 64),
                              static_cast<int64_t>(1 + random() % 32)};
    std::vector<PairLength> lengths(random() % 300);
    for (PairLength& n : lengths) {
      n = {static_cast<int64_t>(random() % static_cast<uint64_t>(capacity.source + 1)),
           static_cast<int64_t>(random() % static_cast<uint64_t>(capacity.target + 1))};
    }
    std::vector<int> seen(lengths.size());
    int64_t last_first = -1;
    for (const PackedRow& row : pack_pairs(lengths, capacity)) {
      PairLength used;
      int64_t last = -1;
      for (const Segment& s : row) {
        ASSERT_GT(s.row, last);  // in their order
        last = s.row;
        const PairLength& pair = lengths[static_cast<size_t>(s.row)];
        ASSERT_EQ(s.begin, 0);
        ASSERT_EQ(s.length, pair.target);
        ASSERT_EQ(s.source_length, pair.source);
        used = {used.source + s.source_length, used.target + s.length};
        ++seen[static_cast<size_t>(s.row)];
      }
      ASSERT_LE(used.source, capacity.source);
      ASSERT_LE(used.target, capacity.target);
      ASSERT_GT(row.front().row, last_first);
      last_first = row.front().row;
    }
    for (size_t i = 0; i < lengths.size(); ++i) {
      ASSERT_EQ(seen[i], lengths[i].source + lengths[i].target > 0) << i;
    }
  }
}

// Against the lower bound of any packing: the fuller side's tokens in full rows.
TEST(PackPairs, IsTight) {
  std::mt19937 random(6);
  std::vector<PairLength> lengths(4096);
  PairLength total;
  for (PairLength& n : lengths) {
    n = {static_cast<int64_t>(5 + random() % 176), static_cast<int64_t>(2 + random() % 90)};
    total = {total.source + n.source, total.target + n.target};
  }
  const auto packed = static_cast<double>(pack_pairs(lengths, {256, 128}).size());
  const auto least =
      static_cast<double>(std::max((total.source + 255) / 256, (total.target + 127) / 128));
  EXPECT_LT(packed, 1.03 * least);
  // Space that is large enough in sum, but not on one side, is skipped.
  EXPECT_EQ(pack_pairs({{8, 1}, {1, 4}, {1, 4}}, {8, 8}).size(), 2u);
  EXPECT_EQ(pack_pairs({{5, 1}, {3, 7}, {4, 4}, {4, 4}}, {8, 8}).size(), 2u);
}

// A model matches segments of both sides by their order: one that is missing would shift the rest.
TEST(PackPairs, PairsWithAnEmptySideAreAlone) {
  const auto packed = pack_pairs({{1, 1}, {0, 2}, {2, 0}, {1, 1}, {0, 0}, {0, 1}}, {8, 8});
  std::vector<std::vector<int64_t>> rows;
  for (const PackedRow& row : packed) {
    rows.emplace_back();
    for (const Segment& s : row) rows.back().push_back(s.row);
  }
  EXPECT_EQ(rows, (std::vector<std::vector<int64_t>>{{0, 3}, {1}, {2}, {5}}));
}

TEST(Buckets, AreFewAndClose) {
  int64_t last = 0, count = 0;
  for (int64_t n = 1; n <= 4096; ++n) {
    const int64_t b = bucket_length(n, 1 << 20);
    ASSERT_GE(b, n);
    if (n > 64) {
      ASSERT_LT(static_cast<double>(b), 1.25 * static_cast<double>(n) + 1) << n;
    }
    count += b != last;
    last = b;
  }
  EXPECT_LE(count, 4 + 6 * 4);
  EXPECT_EQ(bucket_length(65, 4096), 80);
  EXPECT_EQ(bucket_length(128, 4096), 128);
  EXPECT_EQ(bucket_length(129, 4096), 160);
  EXPECT_EQ(bucket_length(900, 1000), 1000);
}

}  // namespace
}  // namespace weft
