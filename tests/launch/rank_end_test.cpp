// tests/launch/rank_end_test.cpp: ends of ranks in words, on one line and for people.
#include "launch/rank_end.h"

#include <gtest/gtest.h>

#include <csignal>

namespace weft {
namespace {

constexpr const char* kSaid =
    "rank 0 waited 2.0 s\n    for  rank 1\n  hint: that rank hangs\n    or is very slow";

TEST(RankEnd, AHintIsNoPartOfOneLine) {
  EXPECT_EQ(one_line(kSaid), "rank 0 waited 2.0 s for  rank 1");
  EXPECT_EQ(one_line("disk full"), "disk full");
  EXPECT_EQ(one_line(""), "");
}

TEST(RankEnd, WhatIsAddedComesBeforeTheHint) {
  EXPECT_EQ(add_before_hint("disk full\n  hint: free some", "; it is used up"),
            "disk full; it is used up\n  hint: free some");
  EXPECT_EQ(add_before_hint("disk full", "; it is used up"), "disk full; it is used up");
  EXPECT_EQ(add_before_hint(kSaid, ""), kSaid);
}

TEST(RankEnd, ThoseThatDiedTooAreNamed) {
  EXPECT_EQ(describe_others({}), "");
  EXPECT_EQ(describe_others({{0, SIGKILL}, {2, 0}}),
            "; also killed: rank 0 (SIGKILL), rank 2 (hung)");
}

}  // namespace
}  // namespace weft
