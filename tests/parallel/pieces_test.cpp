// tests/parallel/pieces_test.cpp: what a rank holds of a cut parameter.
#include "parallel/pieces.h"

#include <fmt/core.h>
#include <gtest/gtest.h>

#include <set>

#include "base/error.h"

namespace weft {
namespace {

constexpr int64_t kHead = 8;

// "0:8 x2 of 2 ranks" per piece: x2 where two leaves of this rank read it; * the copy that is
// saved.
std::string pieces(const TensorParallel& mesh, const Cut& cut, int64_t extent) {
  std::string text;
  for (const Piece& p : pieces_of(mesh, cut, extent)) {
    text += fmt::format("{}{}:{}{}", text.empty() ? "" : " ", p.begin, p.end,
                        p.is_first_copy ? "*" : "");
    if (p.leaves > 1) text += fmt::format(" x{}", p.leaves);
    if (p.copies > 1) text += fmt::format(" of {} ranks", p.copies);
    if (p.copy_group >= 0) text += fmt::format(" in {}", p.copy_group);
  }
  return text;
}

std::string heads(int num_heads, int tp, int rank, int leaves, bool is_exact = true) {
  return pieces({tp, rank, leaves, is_exact}, {0, kHead}, num_heads * kHead);
}

TEST(Pieces, AreRunsOfWholeUnits) {
  EXPECT_EQ(heads(4, 2, 0, 2), "0:16*");
  EXPECT_EQ(heads(4, 2, 1, 4), "16:24* 24:32*");
  EXPECT_EQ(heads(4, 1, 0, 4), "0:8* 8:16* 16:24* 24:32*");
}

TEST(Pieces, OfAVocabularyMayBeEmpty) {
  const Cut vocabulary{0, 1, true};
  EXPECT_EQ(pieces({1, 0, 4, true}, vocabulary, 150), "0:64* 64:128* 128:150* 150:150*");
  EXPECT_EQ(pieces({2, 1, 2, true}, vocabulary, 150), "128:150*");
}

// For any number, the pieces cover the vocabulary exactly once.
TEST(Pieces, OfAVocabularyAreComplete) {
  const Cut vocabulary{0, 1, true};
  EXPECT_EQ(pieces({1, 0, 4, true}, vocabulary, 257), "0:128* 128:256* 256:257* 257:257*");
  for (int count = 1; count <= 8; ++count) {
    for (int64_t extent = 1; extent < 1100; ++extent) {
      int64_t at = 0;
      for (int rank = 0; rank < count; ++rank) {
        for (const Piece& p : pieces_of({count, rank, count, true}, vocabulary, extent)) {
          ASSERT_EQ(p.begin, at);
          at = p.end;
        }
      }
      ASSERT_EQ(at, extent) << count << " pieces";
    }
  }
}

TEST(Pieces, FewerUnitsThanRanksAreCopied) {
  EXPECT_EQ(heads(2, 4, 0, 4, false), "0:8* of 2 ranks");
  EXPECT_EQ(heads(2, 4, 1, 4, false), "0:8 of 2 ranks");
  EXPECT_EQ(heads(2, 6, 3, 6, false), "8:16* of 3 ranks");
}

// Two key/value heads, four leaves: a rank holds a head once, whatever number of leaves reads it.
TEST(Pieces, FewerUnitsThanLeavesAreReadByNeighbours) {
  EXPECT_EQ(heads(2, 1, 0, 4), "0:8* x2 8:16* x2");
  EXPECT_EQ(heads(2, 2, 0, 4), "0:8* x2");
  EXPECT_EQ(heads(2, 2, 1, 4), "8:16* x2");
  EXPECT_EQ(heads(2, 4, 1, 4), "0:8 of 2 ranks");
  EXPECT_EQ(heads(2, 4, 2, 4), "8:16* of 2 ranks");
}

// Eight leaves on four ranks: copies on a rank, and of the rank.
TEST(Pieces, LeavesAndRanksShareAUnit) {
  EXPECT_EQ(heads(2, 4, 0, 8), "0:8* x2 of 2 ranks");
  EXPECT_EQ(heads(2, 4, 3, 8), "8:16 x2 of 2 ranks");
  EXPECT_EQ(heads(1, 2, 1, 8), "0:8 x4 of 2 ranks");
}

// 3 units on 2 and on 4 ranks, 10 on 4: only those between two ranks exist twice.
TEST(Pieces, InFastModeNeitherNumberNeedDivideTheOther) {
  EXPECT_EQ(heads(3, 2, 0, 2, false), "0:8* x2 8:16* of 2 ranks in 0");
  EXPECT_EQ(heads(3, 2, 1, 2, false), "8:16 of 2 ranks in 0 16:24* x2");
  EXPECT_EQ(heads(3, 4, 0, 4, false), "0:8* x3 of 2 ranks in 0");
  EXPECT_EQ(heads(3, 4, 1, 4, false), "0:8 of 2 ranks in 0 8:16* x2 of 2 ranks in 1");
  EXPECT_EQ(heads(3, 4, 2, 4, false), "8:16 x2 of 2 ranks in 1 16:24* of 2 ranks in 0");
  EXPECT_EQ(heads(3, 4, 3, 4, false), "16:24 x3 of 2 ranks in 0");
  EXPECT_EQ(heads(10, 4, 1, 4, false), "16:24 of 2 ranks in 0 24:32* x2 32:40* x2");
}

// For any ranks and units: every leaf is read once, one rank saves a unit, and all holders of a
// unit agree on its group, which no other unit uses on any of them.
TEST(Pieces, SharedUnitsHaveSeparateGroups) {
  for (int units = 1; units <= 12; ++units) {
    for (int tp = 2; tp <= 12; ++tp) {
      const int64_t leaves = leaves_of_spread_units(units, tp);
      std::vector<int64_t> read(static_cast<size_t>(units)), saved(read);
      for (int rank = 0; rank < tp; ++rank) {
        std::set<int> groups;
        for (const Piece& p : pieces_of({tp, rank, tp, false}, {0, 1}, units)) {
          if (units % tp == 0 || tp % units == 0) continue;
          read[static_cast<size_t>(p.begin)] += p.leaves;
          saved[static_cast<size_t>(p.begin)] += p.is_first_copy;
          EXPECT_EQ(p.copy_group >= 0, p.copies > 1);
          EXPECT_TRUE(p.copies == 1 || groups.insert(p.copy_group).second);
        }
      }
      if (units % tp == 0 || tp % units == 0) continue;
      for (const int64_t n : read) EXPECT_EQ(n, leaves * tp / units);
      for (const int64_t n : saved) EXPECT_EQ(n, 1);
    }
  }
}

TEST(Pieces, ThatAreUnevenAreABug) {
  EXPECT_THROW(heads(3, 1, 0, 4), BugError);
  EXPECT_THROW(heads(6, 2, 0, 4), BugError);
  EXPECT_THROW(heads(3, 2, 0, 6), BugError);  // a unit would span two ranks
}

}  // namespace
}  // namespace weft
