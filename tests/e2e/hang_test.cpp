// tests/e2e/hang_test.cpp: ranks that neither compute nor die, and ranks that only wait for a disk.
#include <gtest/gtest.h>

#include <algorithm>
#include <csignal>

#include "tests/e2e/disturbed_run.h"
#include "tests/faults/preload.h"

namespace weft::testing {
namespace {

std::string event_text(const TinyRun& run, const char* event, const char* key) {
  const std::vector<Json> lines = event_lines(run.dir("hit"), event);
  return lines.empty() ? "" : lines[0].at(key).as_string();
}

// The others miss it, its stack is read, and it is replaced.
TEST(Hang, AStoppedRankIsFoundAndReplaced) {
  const TinyRun run;
  const std::vector<std::string> layout = {"parallel.dp=2", "launch.hang_timeout_s=1"};
  run.train_well(sets_of(run, "calm", layout));
  Program program(run.words("train", sets_of(run, "hit", layout)));
  ASSERT_TRUE(program.wait_until([&] { return num_steps(run, "hit") > 40; }));
  const pid_t rank = children_of(program.pid()).at(1);
  ::kill(rank, SIGSTOP);
  const Ended ended = program.wait();
  EXPECT_EQ(ended.exit_code, 0) << ended.err;
  expect_parts(ended.err, {"rank 1 hangs and is killed (", "; its stack is in ", "rank 0 waited ",
                           " for rank 1 (last seen in ", "continuing from step "});
  // Where it was stopped is not known, but how it got there is.
  expect_parts(slurp(run.dir("hit") / "log/rank-00001.log"),
               {"the rank hangs (", "; last collective: ", "); its stack:\nthread ",
                "weft::Trainer::run()", " (weft)\n"});
  EXPECT_EQ(num_events(run, "hit", "recovered"), 1u);
  ASSERT_EQ(num_events(run, "hit", "rank_hung"), 1u);
  expect_parts(event_text(run, "rank_hung", "last"), {", step ", "; last collective: "});
  expect_parts(event_text(run, "rank_hung", "stack"), {"thread ", "weft::Trainer::run()"});
  expect_same_run(run, "calm", "hit");
  EXPECT_FALSE(is_any_left(run));
}

// No rank is left to miss another: the supervisor finds it.
TEST(Hang, AllRanksStopped) {
  const TinyRun run;
  const std::vector<std::string> layout = {"parallel.dp=2", "launch.hang_timeout_s=1"};
  run.train_well(sets_of(run, "calm", layout));
  Program program(run.words("train", sets_of(run, "hit", layout)));
  ASSERT_TRUE(program.wait_until([&] { return num_steps(run, "hit") > 40; }));
  for (const pid_t rank : children_of(program.pid())) ::kill(rank, SIGSTOP);
  const Ended ended = program.wait();
  EXPECT_EQ(ended.exit_code, 0) << ended.err;
  expect_parts(ended.err, {"rank 0 hangs and is killed (", "rank 1 hangs and is killed (",
                           " has made no progress for ", "continuing from step "});
  EXPECT_EQ(num_events(run, "hit", "rank_hung"), 2u);
  EXPECT_EQ(num_events(run, "hit", "started"), 1u);  // storage was not read
  expect_same_run(run, "calm", "hit");
  EXPECT_FALSE(is_any_left(run));
}

TEST(Hang, WithoutABudgetItEndsTheRun) {
  const TinyRun run;
  std::vector<std::string> sets = sets_of(run, "hit", {"parallel.dp=2", "launch.hang_timeout_s=1"});
  sets.insert(sets.end(), {"launch.max_restarts=0", "train.steps=100000"});
  Program program(run.words("train", sets));
  ASSERT_TRUE(program.wait_until([&] { return num_steps(run, "hit") > 40; }));
  for (const pid_t rank : children_of(program.pid())) ::kill(rank, SIGSTOP);
  const Ended ended = program.wait(20);
  EXPECT_EQ(ended.exit_code, 75) << ended.err;
  expect_parts(ended.err, {" has made no progress for ", "the same command resumes"});
  EXPECT_EQ(num_events(run, "hit", "rank_hung"), 1u);
  EXPECT_EQ(num_events(run, "hit", "rank failed"), 1u);
  EXPECT_FALSE(is_any_left(run));
}

// A disk on which a write of one rank takes longer than launch.hang_timeout_s: nobody is blamed for
// it, neither the ranks that write nor those that wait for them.
TEST(Hang, ALongWriteIsNone) {
  const TinyRun run;
  for (const char* async : {"true", "false"}) {
    std::vector<std::string> sets =
        sets_of(run, std::string("slow_") + async,
                {"parallel.dp=2", "parallel.shard=zero1", "launch.hang_timeout_s=1"});
    sets.insert(sets.end(), {"train.steps=60", std::string("checkpoint.async=") + async});
    const Ended ended = run_to_end(run.words("train", sets),
                                   {.env = fault_env("write:wait1700:rank-00001.safetensors:1:1")});
    EXPECT_EQ(ended.exit_code, 0) << ended.err;
    EXPECT_FALSE(contains(ended.err, "hangs")) << ended.err;
    EXPECT_FALSE(contains(ended.err, "continuing")) << ended.err;
  }
}

// It completes its write, parks, and goes on: it keeps its process.
TEST(Hang, ARankThatWritesSurvivesTheDeathOfAnother) {
  const TinyRun run;
  const std::vector<std::string> layout = {"parallel.dp=2", "parallel.shard=zero1",
                                           "train.steps=100", "launch.hang_timeout_s=1"};
  run.train_well(sets_of(run, "calm", layout));
  Program program(run.words("train", sets_of(run, "hit", layout)),
                  {.env = fault_env("write:wait1500:step-00000060.writing/rank-00001:1:1",
                                    run / "faults.log")});
  ASSERT_TRUE(program.wait_until([&] { return contains(slurp(run / "faults.log"), " wait "); }));
  const std::vector<pid_t> ranks = children_of(program.pid());
  ::kill(ranks.at(0), SIGKILL);
  ASSERT_TRUE(program.wait_until([&] { return num_events(run, "hit", "recovered") == 1; }));
  const std::vector<pid_t> now = children_of(program.pid());
  EXPECT_NE(std::find(now.begin(), now.end(), ranks[1]), now.end());
  const Ended ended = program.wait();
  EXPECT_EQ(ended.exit_code, 0) << ended.err;
  EXPECT_EQ(num_events(run, "hit", "rank_hung"), 0u) << ended.err;
  expect_same_run(run, "calm", "hit");
}

}  // namespace
}  // namespace weft::testing
