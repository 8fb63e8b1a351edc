// tests/data/pack_test.cpp: no token lost, nothing over the edge, little padding; buckets.
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
