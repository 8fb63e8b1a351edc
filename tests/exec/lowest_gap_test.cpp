// tests/exec/lowest_gap_test.cpp: finds the same offsets as a linear search, with fewer visits.
#include "exec/lowest_gap.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

namespace weft {
namespace {

// The reference: searches all spans by offset, and skips spans that are not alive.
class PlainSearch {
 public:
  int64_t find(const PlacedSpan& s) const {
    int64_t at = 0;
    for (const PlacedSpan& other : placed_) {
      if (other.last < s.first || other.first > s.last) continue;
      if (other.offset >= at + s.bytes) break;
      at = std::max(at, other.offset + other.bytes);
    }
    return at;
  }
  void add(const PlacedSpan& s) {
    placed_.insert(std::upper_bound(placed_.begin(), placed_.end(), s,
                                    [](const PlacedSpan& a, const PlacedSpan& b) {
                                      return a.offset < b.offset;
                                    }),
                   s);
  }

 private:
  std::vector<PlacedSpan> placed_;
};

// Sizes in any order, so that gaps of every kind occur; some spans are empty.
TEST(LowestGap, PlacesAsAPlainSearchDoes) {
  std::mt19937 random(7);
  for (int run = 0; run < 40; ++run) {
    LowestGap gaps(1300);
    PlainSearch plain;
    const int most_size = 1 + static_cast<int>(random() % 40);
    const int longest = 1 + static_cast<int>(random() % 300);
    for (int i = 0; i < 1500; ++i) {
      PlacedSpan s;
      s.bytes = 64 * static_cast<int64_t>(random() % static_cast<unsigned>(most_size));
      s.first = static_cast<int>(random() % 1000);
      s.last = s.first + static_cast<int>(random() % static_cast<unsigned>(longest));
      s.offset = gaps.find(s);
      ASSERT_EQ(s.offset, plain.find(s)) << run << ", span " << i;
      gaps.add(s);
      plain.add(s);
    }
  }
}

// Layers that save activations for the backward pass and use short-lived values, of three sizes.
int64_t visits(int layers) {
  LowestGap gaps(20 * layers + 3);
  for (const int64_t bytes : {4096, 1024, 64}) {
    for (int l = 0; l < layers; ++l) {
      for (int k = 0; k < 4; ++k) {
        const int forward = 10 * l + k, backward = 20 * layers - 10 * l - k;
        for (PlacedSpan s :
             {PlacedSpan{0, bytes, forward, backward}, PlacedSpan{0, bytes, forward, forward + 2},
              PlacedSpan{0, bytes, backward, backward + 2}}) {
          s.offset = gaps.find(s);
          gaps.add(s);
        }
      }
    }
  }
  return gaps.num_visits();
}

TEST(LowestGap, WorkPerSpanHardlyGrowsWithTheirNumber) {
  const int64_t few = visits(100), many = visits(400);
  const int64_t num_spans = 400 * 36;
  EXPECT_LT(many / num_spans, 1500);  // linear search: 7,200
  EXPECT_LT(many, 10 * few);          // linear search: 16 times
}

}  // namespace
}  // namespace weft
