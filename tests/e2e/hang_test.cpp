// tests/e2e/hang_test.cpp: ranks that neither compute nor die, and ranks that only wait for a disk.
#include <fmt/core.h>
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
  const std::vector<std::string> layout = {"parallel.dp=2", "launch.hang_timeout_s=1",
                                           "train.steps=120"};
  run.train_well(sets_of(run, "calm", layout));
  Program program(run.words("train", sets_of(run, "hit", layout)));
  ASSERT_TRUE(program.wait_until([&] { return num_steps(run, "hit") > 20; }));
  const pid_t rank = children_of(program.pid()).at(1);
  ::kill(rank, SIGSTOP);
  const Ended ended = program.wait();
  EXPECT_EQ(ended.exit_code, 0) << ended.err;
  expect_parts(ended.err, {"rank 1 hangs and is killed (", "; its stack is in ", "rank 1 hung (",
                           "; a signal has stopped it (SIGSTOP)) and was killed; continuing from "
                           "step "});
  EXPECT_FALSE(contains(ended.err, " waited ")) << ended.err;  // those who did are not to blame
  // Where it was stopped is not known, but how it got there is.
  expect_parts(slurp(run.dir("hit") / "log/rank-00001.log"),
               {"the rank hangs (", "; last collective: ", "); its stack:\nthread ",
                "weft::Trainer::run()", " (weft)\n"});
  EXPECT_EQ(num_events(run, "hit", "recovered"), 1u);
  ASSERT_EQ(num_events(run, "hit", "rank_hung"), 1u);
  expect_parts(event_text(run, "rank_hung", "last"),
               {", step ", "; last collective: ", "; a signal has stopped it (SIGSTOP)"});
  expect_parts(event_text(run, "rank_hung", "stack"), {"thread ", "weft::Trainer::run()"});
  ASSERT_EQ(num_events(run, "hit", "rank_died"), 1u);
  expect_parts(event_text(run, "rank_died", "message"), {"rank 1 hung (", ") and was killed"});
  EXPECT_EQ(event_lines(run.dir("hit"), "rank_died")[0].at("ranks").dump(),
            Json(Json::Array{Json(1)}).dump());
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
                           "rank 0 hung (", "; also killed: rank 1 (hung); continuing from step "});
  EXPECT_EQ(num_events(run, "hit", "rank_hung"), 2u);
  EXPECT_EQ(event_lines(run.dir("hit"), "rank_died").at(0).at("ranks").dump(),
            Json(Json::Array{Json(0), Json(1)}).dump());
  EXPECT_EQ(num_events(run, "hit", "started"), 1u);  // storage was not read
  expect_same_run(run, "calm", "hit");
  EXPECT_FALSE(is_any_left(run));
}

// Ranks answer their own rows, without a collective and without a deadline. The other one is not
// blamed: it keeps its process.
TEST(Hang, ARankStoppedWhileAnswering) {
  const TinyRun run;
  std::string rows;
  for (int i = 0; i < 2000; ++i) rows += fmt::format("{{\"q\": \"{}?\", \"a\": \"xxxxxxx\"}}\n", i);
  run.write("pairs.jsonl", rows);
  const std::string pairs = (run / "pairs.jsonl").string();
  Program program(run.words(
      "train", {"name=hit", "parallel.dp=2", "launch.hang_timeout_s=1", "train.steps=1000",
                "train.eval_every=1", "data.train=[" + pairs + "]", "data.eval=[" + pairs + "]",
                "data.source={q}", "data.target={a}", "eval.generate=2000", "eval.match=sql"}));
  const auto phase_of = [&] {
    try {
      const Json status = parse_json(slurp(run.dir("hit") / ".status.json"), "status");
      return status.at("ranks").as_array().at(1).at("phase").as_string();
    } catch (const std::exception&) {  // not there yet
      return std::string();
    }
  };
  ASSERT_TRUE(program.wait_until([&] { return phase_of() == "answering"; }));
  const std::vector<pid_t> ranks = children_of(program.pid());
  ::kill(ranks.at(1), SIGSTOP);
  ASSERT_TRUE(program.wait_until([&] { return num_events(run, "hit", "recovered") == 1; }, 30));
  const std::vector<pid_t> now = children_of(program.pid());
  EXPECT_NE(std::find(now.begin(), now.end(), ranks[0]), now.end());
  EXPECT_EQ(num_events(run, "hit", "rank_hung"), 1u);
}

// Others wait for it, and for each other; the one that hangs is found, shown and named.
TEST(Hang, WithoutABudgetTheRankThatHangsIsTheCause) {
  const TinyRun run;
  std::vector<std::string> sets =
      sets_of(run, "hit", {"parallel.dp=2", "parallel.tp=2", "launch.hang_timeout_s=3"});
  sets.insert(sets.end(), {"launch.max_restarts=0", "train.steps=100000"});
  Program program(run.words("train", sets));
  ASSERT_TRUE(program.wait_until([&] { return num_steps(run, "hit") > 10; }));
  ::kill(children_of(program.pid()).at(3), SIGSTOP);
  const Ended ended = program.wait(60);
  EXPECT_EQ(ended.exit_code, 75) << ended.err;
  expect_parts(ended.err,
               {"rank 3 hangs and is killed (", "error: rank 3 hung (",
                "; a signal has stopped it (SIGSTOP)) and was killed", "launch.max_restarts"});
  EXPECT_FALSE(contains(ended.err, " waited ")) << ended.err;
  expect_parts(slurp(run.dir("hit") / "log/rank-00003.log"), {"the rank hangs (", "its stack:\n"});
  ASSERT_EQ(num_events(run, "hit", "rank_hung"), 1u);
  EXPECT_EQ(event_lines(run.dir("hit"), "rank_hung")[0].at("rank").as_int(), 3);
  ASSERT_EQ(num_events(run, "hit", "rank failed"), 1u);
  EXPECT_EQ(event_lines(run.dir("hit"), "rank failed")[0].at("rank").as_int(), 3);
  expect_parts(event_text(run, "rank failed", "message"), {"rank 3 hung (", ") and was killed"});
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
  expect_parts(ended.err,
               {"error: rank ", " hung (", ") and was killed", "the same command resumes"});
  EXPECT_EQ(num_events(run, "hit", "rank_hung"), 2u);
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
