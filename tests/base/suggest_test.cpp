// tests/base/suggest_test.cpp: what is near, what is not, and ties.
#include "base/suggest.h"

#include <gtest/gtest.h>

namespace weft {
namespace {

TEST(Suggest, CountsEdits) {
  EXPECT_EQ(edit_distance("", ""), 0);
  EXPECT_EQ(edit_distance("abc", ""), 3);
  EXPECT_EQ(edit_distance("", "ab"), 2);
  EXPECT_EQ(edit_distance("kitten", "sitting"), 3);
  EXPECT_EQ(edit_distance("train", "trian"), 1);  // a swap of neighbours is one edit
}

TEST(Suggest, FindsTheNearest) {
  const std::vector<std::string> known = {"train", "eval", "generate", "tokenize", "hash"};
  EXPECT_EQ(nearest("trian", known), "train");
  EXPECT_EQ(nearest("evl", known), "eval");
  EXPECT_EQ(nearest("generat", known), "generate");
  EXPECT_EQ(nearest("tokenise", known), "tokenize");
}

TEST(Suggest, IgnoresDistantWords) {
  const std::vector<std::string> known = {"train", "eval"};
  EXPECT_EQ(nearest("dashboard", known), std::nullopt);
  EXPECT_EQ(nearest("", known), std::nullopt);
  EXPECT_EQ(nearest("x", {}), std::nullopt);
  EXPECT_EQ(nearest(std::string(1 << 20, 'x'), known), std::nullopt);
}

TEST(Suggest, PrefersTheFirstOfEquals) { EXPECT_EQ(nearest("bat", {"cat", "bar"}), "cat"); }

TEST(Suggest, Asks) {
  EXPECT_EQ(did_you_mean("evla", {"eval"}), ", did you mean \"eval\"?");
  EXPECT_EQ(did_you_mean("zzz", {"eval"}), "");
}

}  // namespace
}  // namespace weft
