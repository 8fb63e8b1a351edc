// tests/launch/node_ends_test.cpp: what the ends of a generation's ranks mean.
#include "launch/node_ends.h"

#include <gtest/gtest.h>

#include <csignal>

namespace weft {
namespace {

RankEnd exited(int64_t rank, int code, const std::string& words = "") {
  return {0, rank, code, 0, false, words};
}
RankEnd killed(int64_t rank, int signal, bool by_us = false) {
  return {0, rank, 0, signal, by_us, ""};
}

// Two nodes of two ranks; those that are not named have lost their peers.
NodeEnds ends_of(const std::vector<RankEnd>& given, int stop_signal = 0) {
  NodeEnds ends(2, 2);
  for (const RankEnd& end : given) ends.note(end, stop_signal);
  for (int64_t r = 0; r < 4; ++r) ends.note(exited(r, 75, "lost its peers"), stop_signal);
  EXPECT_TRUE(ends.all_ended());
  return ends;
}

TEST(NodeEnds, ARunThatHasDoneItsWorkHasNoCause) {
  EXPECT_FALSE(ends_of({exited(0, 0), exited(1, 0), exited(2, 0), exited(3, 0)}).cause());
  const NodeEnds stopped =
      ends_of({exited(0, 143), exited(1, 143), exited(2, 143), exited(3, 143)}, SIGTERM);
  EXPECT_FALSE(stopped.cause());
  EXPECT_TRUE(stopped.has_any_stopped());
}

TEST(NodeEnds, AllThatDiedAreNamed) {
  const NodeEnds ends = ends_of({killed(3, SIGKILL), killed(0, SIGSEGV), killed(1, SIGKILL, true)});
  EXPECT_EQ(ends.cause()->words + describe_others(ends.others_than(3)),
            "rank 3 was killed by SIGKILL; also killed: rank 0 (SIGSEGV)");
  EXPECT_TRUE(ends_of({killed(3, SIGKILL)}).others_than(3).empty());
}

TEST(NodeEnds, ADeathComesBeforeThoseWhoLostTheirPeers) {
  const auto cause = ends_of({exited(1, 75), killed(3, SIGKILL)}).cause();
  ASSERT_TRUE(cause);
  EXPECT_EQ(cause->rank, 3);
  EXPECT_EQ(cause->words, "rank 3 was killed by SIGKILL");
  EXPECT_EQ(cause->exit_code, 75);
  EXPECT_FALSE(cause->would_repeat);
}

TEST(NodeEnds, AFailureComesBeforeADeath) {
  const auto cause =
      ends_of({killed(3, SIGKILL), exited(2, 1, "disk full"), exited(1, 70, "a bug")}).cause();
  ASSERT_TRUE(cause);
  EXPECT_EQ(cause->rank, 2);
  EXPECT_EQ(cause->words, "rank 2 ended with exit code 1: disk full");
  EXPECT_EQ(cause->exit_code, 1);
  EXPECT_TRUE(cause->would_repeat);
}

// As on one machine: people need not know which rank found it.
TEST(NodeEnds, WrongInputIsReportedInItsOwnWords) {
  const auto cause = ends_of({exited(2, 2, "no such file\n  hint: give another")}).cause();
  ASSERT_TRUE(cause);
  EXPECT_EQ(cause->words, "rank 2 ended with exit code 2: no such file");
  EXPECT_EQ(cause->report, "no such file\n  hint: give another");
  EXPECT_EQ(ends_of({exited(2, 1, "disk full")}).cause()->report,
            "rank 2 ended with exit code 1: disk full");
  EXPECT_EQ(ends_of({exited(2, 2)}).cause()->report, "rank 2 ended with exit code 2");
}

TEST(NodeEnds, WhatTheAgentKilledIsNoCause) {
  const auto cause = ends_of({killed(1, SIGKILL, true), killed(2, SIGKILL, true)}).cause();
  ASSERT_TRUE(cause);
  EXPECT_EQ(cause->rank, 0);  // it has lost its peers; who hung was killed by us
}

// Its agent reports it, then kills it; the others have only waited for it.
TEST(NodeEnds, ARankThatHungComesBeforeThoseWhoWaitedForIt) {
  NodeEnds ends(2, 2);
  RankEnd waited = exited(0, 75, "rank 0 waited 2.0 s for rank 1");
  waited.has_waited = true;
  ends.note(waited, 0);
  ends.note_hung(2, "update, step 7", false);
  ends.note_hung(3, "update, step 8", false);
  for (const int rank : {3, 2, 1}) ends.note(killed(rank, SIGKILL, true), 0);
  const auto cause = ends.cause();
  ASSERT_TRUE(cause);
  EXPECT_EQ(cause->rank, 3);  // the first that was killed
  EXPECT_EQ(cause->words + describe_others(ends.others_than(3)),
            "rank 3 hung (update, step 8) and was killed; also killed: rank 2 (hung)");
  EXPECT_EQ(cause->report, "rank 3 hung (update, step 8) and was killed");
  EXPECT_EQ(cause->exit_code, 75);
  EXPECT_FALSE(cause->would_repeat);
}

// A GPU fails, which is exit 75 too; another rank may need long for what it does then.
TEST(NodeEnds, ARankThatIsFoundToHangAfterAnotherHasFailedIsNoCauseOfThat) {
  for (const bool is_first : {false, true}) {
    NodeEnds ends(2, 2);
    ends.note(exited(1, 75, "GPU 1 is lost"), 0);
    ends.note_hung(2, "update, step 7", is_first);
    for (const int rank : {2, 3, 0}) ends.note(killed(rank, SIGKILL, true), 0);
    ASSERT_TRUE(ends.cause());
    EXPECT_EQ(ends.cause()->rank, is_first ? 2 : 1);
  }
}

TEST(NodeEnds, ADeathComesBeforeARankThatHung) {
  NodeEnds ends(2, 2);
  ends.note_hung(2, "update, step 7", true);
  ends.note(killed(2, SIGKILL, true), 0);
  ends.note(killed(1, SIGSEGV), 0);
  EXPECT_EQ(ends.cause()->rank, 1);
}

TEST(NodeEnds, ALostNodeEndsItsRanks) {
  NodeEnds ends(2, 2);
  ends.note(exited(0, 75), 0);
  ends.note(exited(1, 75), 0);
  EXPECT_FALSE(ends.all_ended());
  EXPECT_TRUE(ends.lose(1, "node 1 was lost"));
  EXPECT_FALSE(ends.lose(1, "again"));  // it has no ranks any more
  EXPECT_TRUE(ends.all_ended());
  const auto cause = ends.cause();
  ASSERT_TRUE(cause);
  EXPECT_EQ(cause->words, "node 1 was lost");
  EXPECT_EQ(cause->rank, -1);
  EXPECT_FALSE(cause->would_repeat);
  ends.begin(2);
  EXPECT_FALSE(ends.all_ended());
  EXPECT_TRUE(ends.lost_nodes().empty());
}

// It was placed for the next generation, which is larger.
TEST(NodeEnds, ANodeThatWasNeverStartedHasNoRanks) {
  NodeEnds ends(2, 2);
  EXPECT_FALSE(ends.lose(2, "node 2 was lost"));
  EXPECT_FALSE(ends.all_ended());
  for (int64_t r = 0; r < 4; ++r) {
    EXPECT_EQ(ends.has_ended(0), r >= 2);
    ends.note(exited(r, 0), 0);
  }
  EXPECT_TRUE(ends.has_ended(1));
}

TEST(NodeEnds, RanksThatMadeWayForAnotherLayoutHaveStopped) {
  const NodeEnds ends = ends_of({exited(0, 192), exited(1, 192), exited(2, 192), exited(3, 192)});
  EXPECT_FALSE(ends.cause());
  EXPECT_TRUE(ends.has_any_stopped());
}

TEST(NodeEnds, RankZeroMayFinishAlone) {
  EXPECT_FALSE(ends_of({exited(0, 0), killed(3, SIGKILL)}).cause());
  EXPECT_TRUE(ends_of({exited(0, 0), exited(3, 2, "wrong")}).cause());
}

TEST(NodeEnds, ARefusalComesFirst) {
  NodeEnds ends(2, 2);
  ends.note(exited(0, 1), 0);
  ends.note(exited(1, 75), 0);
  ends.refuse(1, "node 1: storage is not shared", 2);
  const auto cause = ends.cause();
  ASSERT_TRUE(cause);
  EXPECT_EQ(cause->exit_code, 2);
  EXPECT_TRUE(cause->would_repeat);
}

}  // namespace
}  // namespace weft
