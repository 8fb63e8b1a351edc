// tests/base/suggest_test.cpp: distances counted by hand, and words too far to be meant.
#include "base/suggest.h"

#include <gtest/gtest.h>

namespace weft {
namespace {

TEST(Suggest, Distance) {
  EXPECT_EQ(edit_distance("", "abc"), 3u);
  EXPECT_EQ(edit_distance("kitten", "sitting"), 3u);
  EXPECT_EQ(edit_distance("hsah", "hash"), 1u);
  EXPECT_EQ(edit_distance("train", "train"), 0u);
}

TEST(Suggest, NearestOrNothing) {
  const std::vector<std::string> known = {"train", "hash", "diff", "inspect", "seq_length"};
  EXPECT_EQ(find_nearest("hahs", known), "hash");
  EXPECT_EQ(find_nearest("trian", known), "train");
  EXPECT_EQ(find_nearest("seqlength", known), "seq_length");
  EXPECT_EQ(find_nearest("banana", known), std::nullopt);
  EXPECT_EQ(find_nearest("x", {}), std::nullopt);
}

}  // namespace
}  // namespace weft
