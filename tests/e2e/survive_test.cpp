// tests/e2e/survive_test.cpp: ranks that are killed, and runs that end as if none had been.
#include <fcntl.h>
#include <fmt/core.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <random>
#include <thread>

#include "tests/e2e/disturbed_run.h"
#include "tests/e2e/spoiled_slots.h"
#include "tests/faults/preload.h"

namespace weft::testing {
namespace {

bool is_lock_free(const std::filesystem::path& file) {
  const int lock = ::open(file.c_str(), O_RDWR | O_CLOEXEC);
  const bool is_free = ::flock(lock, LOCK_EX | LOCK_NB) == 0;
  ::close(lock);
  return is_free;
}

// Lets it train a little further, then kills `count` of its ranks. False: it has ended.
bool kill_some(Program& program, const TinyRun& run, const std::string& name, size_t count,
               std::mt19937& dice) {
  const size_t steps = num_steps(run, name) + 1 + dice() % 20;
  if (!program.wait_until([&] { return num_steps(run, name) >= steps; })) return false;
  std::vector<pid_t> ranks = children_of(program.pid());
  std::shuffle(ranks.begin(), ranks.end(), dice);
  for (size_t i = 0; i < std::min(count, ranks.size()); ++i) ::kill(ranks[i], SIGKILL);
  return true;
}

class SurviveIn : public ::testing::TestWithParam<Variant> {};

TEST_P(SurviveIn, KilledRanksChangeNothing) {
  const std::vector<std::string> layout = with({"train.steps=140"}, GetParam().sets);
  std::mt19937 dice(3);
  const TinyRun run;
  run.train_well(sets_of(run, "calm", layout));
  Program program(run.words("train", sets_of(run, "hit", layout)));
  size_t kills = 0;
  while (kills < 4 && kill_some(program, run, "hit", 1, dice)) ++kills;
  const Ended ended = program.wait();
  EXPECT_EQ(ended.exit_code, 0) << ended.err;
  EXPECT_GE(num_events(run, "hit", "recovered"), 1u) << ended.err;
  EXPECT_EQ(num_events(run, "hit", "started"), 1u);  // storage was not read
  expect_parts(ended.err, {"was killed by SIGKILL; continuing from step "});
  expect_same_run(run, "calm", "hit");
  EXPECT_FALSE(is_any_left(run));
}

INSTANTIATE_TEST_SUITE_P(
    Layouts, SurviveIn,
    ::testing::Values(
        Variant{"dp2", {"parallel.dp=2"}},
        Variant{"dp2_tp2_zero3", {"parallel.dp=2", "parallel.tp=2", "parallel.shard=zero3"}},
        Variant{"exact",
                {"parallel.dp=2", "parallel.tp=2", "parallel.shard=zero3", "parallel.mode=exact"}},
        Variant{"zero1_bf16",
                {"parallel.dp=2", "parallel.shard=zero1", "train.precision=bf16",
                 "checkpoint.async=false"}},
        Variant{"tp2_dynamic",
                {"parallel.tp=2", "data.layout=dynamic", "launch.snapshot_every=7"}}),
    kVariantName);

// A new rank has not evaluated yet, and the others have: they must not wait for each other.
TEST(Survive, ADeathBetweenTwoEvaluations) {
  const TinyRun run;
  const std::vector<std::string> layout = {"parallel.dp=2", "train.eval_every=40",
                                           "launch.max_restarts=1"};
  run.train_well(sets_of(run, "calm", layout));
  Program program(run.words("train", sets_of(run, "hit", layout)));
  ASSERT_TRUE(program.wait_until([&] { return num_steps(run, "hit") >= 42; }));
  ::kill(children_of(program.pid())[1], SIGKILL);
  const Ended ended = program.wait();
  EXPECT_EQ(ended.exit_code, 0) << ended.err;
  EXPECT_EQ(num_events(run, "hit", "recovered"), 1u) << ended.err;
  expect_same_run(run, "calm", "hit");
  const auto generation_of = [&](int64_t step) {
    const std::string text = slurp(run.checkpoint(step, "hit") / "state.json");
    return parse_json(text, "state.json").at("generation").as_int();
  };
  EXPECT_EQ(generation_of(30), 0);
  EXPECT_EQ(generation_of(180), 1);
}

TEST(Survive, SeveralAtOnceAndDuringRecovery) {
  const TinyRun run;
  const std::vector<std::string> layout = {"parallel.dp=2", "parallel.tp=2",
                                           "parallel.shard=zero3"};
  run.train_well(sets_of(run, "calm", layout));
  std::mt19937 dice(5);
  for (const size_t count : {2u, 4u}) {
    const std::string name = "hit" + std::to_string(count);
    Program program(run.words("train", sets_of(run, name, layout)));
    ASSERT_TRUE(kill_some(program, run, name, count, dice));
    for (int i = 0; i < 3; ++i) {  // some of them while the last ones are being replaced
      std::this_thread::sleep_for(std::chrono::milliseconds(dice() % 60));
      const std::vector<pid_t> ranks = children_of(program.pid());
      if (!ranks.empty()) ::kill(ranks[dice() % ranks.size()], SIGKILL);
    }
    const Ended ended = program.wait();
    EXPECT_EQ(ended.exit_code, 0) << ended.err;
    expect_same_run(run, "calm", name);
    EXPECT_FALSE(is_any_left(run));
  }
}

// A second start could otherwise train in the directory between rank 0's death and its replacement.
TEST(Survive, TheDirectoryStaysLocked) {
  const TinyRun run;
  const std::vector<std::string> layout = {"parallel.dp=2"};
  Program program(run.words("train", sets_of(run, "hit", layout)));
  const std::filesystem::path file = run.dir("hit") / ".lock";
  for (size_t kill = 1; kill <= 2; ++kill) {
    const size_t steps = num_steps(run, "hit") + 20;
    ASSERT_TRUE(program.wait_until([&] { return num_steps(run, "hit") > steps; }));
    const int lock = ::open(file.c_str(), O_RDWR | O_CLOEXEC);
    ASSERT_GE(lock, 0);
    ::kill(children_of(program.pid()).at(0), SIGKILL);
    bool was_free = false;
    EXPECT_TRUE(program.wait_until([&] {
      was_free = was_free || ::flock(lock, LOCK_EX | LOCK_NB) == 0;
      return was_free || num_events(run, "hit", "recovered") == kill;
    }));
    ::close(lock);
    EXPECT_FALSE(was_free);
  }
  EXPECT_EQ(program.wait().exit_code, 0);
  EXPECT_TRUE(is_lock_free(file));
}

// Trying again would end as the first time: the run goes back to its newest checkpoint, and says
// so. From then on memory is good again. Generations are counted through, whatever they started
// from.
TEST(Survive, MemoryThatCannotBeReadSendsTheRunToStorage) {
  const TinyRun run;
  const std::vector<std::string> layout = {"parallel.dp=2", "parallel.shard=zero3",
                                           "launch.max_restarts=3"};
  run.train_well(sets_of(run, "calm", layout));
  Program program(run.words("train", sets_of(run, "hit", layout)));
  ASSERT_TRUE(program.wait_until([&] { return num_steps(run, "hit") >= 40; }));
  const std::vector<std::string> segments = slot_segments(program.pid());
  ASSERT_EQ(segments.size(), 1u);
  ASSERT_TRUE(spoil_layouts(segments[0], 2));
  ::kill(children_of(program.pid()).at(1), SIGKILL);
  ASSERT_TRUE(program.wait_until([&] { return num_events(run, "hit", "started") == 2; }));
  const size_t steps = num_steps(run, "hit") + 20;
  ASSERT_TRUE(program.wait_until([&] { return num_steps(run, "hit") >= steps; }));
  ::kill(children_of(program.pid()).at(1), SIGKILL);
  const Ended ended = program.wait();
  EXPECT_EQ(ended.exit_code, 0) << ended.err;
  expect_parts(ended.err,
               {" cannot read the snapshots of step ", "continuing from the newest checkpoint, ",
                " (restart 2 of 3)", ", as generation 3"});
  EXPECT_EQ(num_events(run, "hit", "recovery_failed"), 1u) << ended.err;
  EXPECT_EQ(generations_of(run, "hit"), (std::vector<int64_t>{0, 2, 3})) << ended.err;
  EXPECT_GE(event_lines(run.dir("hit"), "started").at(1).at("step").as_int(), 30);
  expect_same_run(run, "calm", "hit");
  EXPECT_FALSE(is_any_left(run));
}

// It costs a restart of the budget.
TEST(Survive, MemoryThatCannotBeReadAndNoRestartLeftEndsTheRun) {
  const TinyRun run;
  const std::vector<std::string> layout = {"parallel.dp=2", "launch.max_restarts=1"};
  Program program(run.words("train", sets_of(run, "hit", layout)));
  ASSERT_TRUE(program.wait_until([&] { return num_steps(run, "hit") >= 40; }));
  ASSERT_TRUE(spoil_layouts(slot_segments(program.pid()).at(0), 2));
  ::kill(children_of(program.pid()).at(1), SIGKILL);
  const Ended ended = program.wait();
  EXPECT_EQ(ended.exit_code, 75) << ended.err;
  expect_parts(ended.err, {" cannot read the snapshots of step "});
  EXPECT_EQ(num_events(run, "hit", "started"), 1u);
}

// Nothing is in memory yet: all ranks are started again.
TEST(Survive, ADeathBeforeTheFirstStep) {
  const TinyRun run;
  const std::vector<std::string> layout = {"parallel.dp=2", "train.steps=6", "checkpoint.every=2",
                                           "train.eval_every=3"};
  run.train_well(sets_of(run, "calm", layout));
  for (const int wait_ms : {0, 5, 15, 30}) {
    const std::string name = "hit" + std::to_string(wait_ms);
    Program program(run.words("train", sets_of(run, name, layout)));
    std::vector<pid_t> ranks;
    ASSERT_TRUE(program.wait_until([&] {
      ranks = children_of(program.pid());
      return ranks.size() == 2;
    }));
    std::this_thread::sleep_for(std::chrono::milliseconds(wait_ms));
    ::kill(ranks[1], SIGKILL);
    const Ended ended = program.wait();
    EXPECT_EQ(ended.exit_code, 0) << ended.err;
    expect_parts(ended.err, {"rank 1 was killed by SIGKILL; continuing from "});
    expect_same_run(run, "calm", name);
  }
}

TEST(Survive, WithoutSnapshotsAllStartFromACheckpoint) {
  const TinyRun run;
  const std::vector<std::string> layout = {"parallel.dp=2", "launch.snapshot_every=0"};
  run.train_well(sets_of(run, "calm", layout));
  Program program(run.words("train", sets_of(run, "hit", layout), {"--overwrite"}));
  ASSERT_TRUE(program.wait_until([&] { return num_steps(run, "hit") > 100; }));
  ::kill(children_of(program.pid()).at(0), SIGKILL);
  const Ended ended = program.wait();
  EXPECT_EQ(ended.exit_code, 0) << ended.err;
  expect_parts(ended.err, {"rank 0 was killed by SIGKILL; continuing from the newest checkpoint, ",
                           "checkpoints/step-"});
  const std::vector<Json> started = event_lines(run.dir("hit"), "started");
  ASSERT_EQ(started.size(), 2u);  // the second --overwrite did not count
  EXPECT_GE(started[1].at("step").as_int(), 60);
  expect_same_run(run, "calm", "hit");
}

// The run goes on without them, says so, and a death is survived all the same.
TEST(Survive, NoMemoryForSnapshots) {
  const TinyRun run;
  const std::vector<std::string> layout = {"parallel.dp=2"};
  run.train_well(sets_of(run, "calm", layout));
  Program program(run.words("train", sets_of(run, "hit", layout)),
                  {.env = fault_env("mmap:ENOMEM:weft-snapshots:2")});
  ASSERT_TRUE(program.wait_until([&] { return num_steps(run, "hit") > 100; }));
  ::kill(children_of(program.pid()).at(1), SIGKILL);
  const Ended ended = program.wait();
  EXPECT_EQ(ended.exit_code, 0) << ended.err;
  expect_parts(ended.err,
               {"has no memory for snapshots: ", "all start from a checkpoint",
                "rank 1 was killed by SIGKILL; continuing from the newest checkpoint, "});
  EXPECT_EQ(num_events(run, "hit", "started"), 2u);
  expect_same_run(run, "calm", "hit");
  EXPECT_FALSE(is_any_left(run));
}

// Its ranks die with it, and the same command goes on from the newest checkpoint.
TEST(Survive, AKilledSupervisor) {
  const TinyRun run;
  const std::vector<std::string> layout = {"parallel.dp=2", "parallel.tp=2"};
  run.train_well(sets_of(run, "calm", layout));
  std::vector<pid_t> ranks;
  {
    Program program(run.words("train", sets_of(run, "hit", layout)));
    ASSERT_TRUE(program.wait_until([&] { return num_steps(run, "hit") > 100; }));
    ranks = children_of(program.pid());
    program.send(SIGKILL);
    program.wait();
  }
  ASSERT_EQ(ranks.size(), 4u);
  for (int i = 0; i < 500 && is_any_left(run); ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  EXPECT_FALSE(is_any_left(run));
  run.train_well(sets_of(run, "hit", layout));
  const std::vector<Json> started = event_lines(run.dir("hit"), "started");
  ASSERT_EQ(started.size(), 2u);
  EXPECT_GE(started[1].at("step").as_int(), 90);
  expect_same_run(run, "calm", "hit");
}

TEST(Survive, TheBudgetIsSpentByDeathsAndRestoredByProgress) {
  const TinyRun run;
  std::mt19937 dice(9);
  for (const char* reset : {"1", "0"}) {
    const std::string name = std::string("reset") + reset;
    std::vector<std::string> sets = sets_of(run, name, {"parallel.dp=2"});
    sets.insert(sets.end(), {"launch.max_restarts=1", "train.steps=100000",
                             std::string("launch.restart_reset_steps=") + reset});
    Program program(run.words("train", sets));
    int kills = 0;
    while (kills < 3 && kill_some(program, run, name, 1, dice)) {
      ++kills;
      const size_t wanted = static_cast<size_t>(kills);
      program.wait_until([&] { return num_events(run, name, "recovered") >= wanted; }, 10);
    }
    if (reset[0] == '1') {
      EXPECT_EQ(kills, 3);
      program.send(SIGTERM);
      EXPECT_EQ(program.wait().exit_code, 143);
      continue;
    }
    EXPECT_EQ(kills, 2);
    const Ended ended = program.wait();
    EXPECT_EQ(ended.exit_code, 75) << ended.err;
    expect_parts(ended.err,
                 {"continuing from step ", "(restart 1 of 1)\n", "error: rank ",
                  "was killed by SIGKILL; launch.max_restarts=1 is used up (before: rank ",
                  "the same command "});
    expect_parts(event_lines(run.dir(name), "rank failed").at(0).at("message").as_string(),
                 {"launch.max_restarts=1 is used up"});
    EXPECT_EQ(num_events(run, name, "rank_died"), 1u);
    EXPECT_EQ(num_events(run, name, "rank failed"), 1u);
    EXPECT_FALSE(is_any_left(run));
  }
}

// What would happen again is not tried again.
TEST(Survive, ARankThatFailsByItselfIsNotReplaced) {
  const TinyRun run;
  std::vector<std::string> sets = sets_of(run, "hit", {"parallel.dp=2"});
  sets.emplace_back("train.lr=1e30");
  const Ended ended = run_to_end(run.words("train", sets));
  EXPECT_EQ(ended.exit_code, 1) << ended.err;
  EXPECT_EQ(num_events(run, "hit", "rank_died"), 0u);
}

// A signal that arrives while ranks are replaced counts when they are back.
TEST(Survive, AStopDuringRecoverySaves) {
  const TinyRun run;
  std::mt19937 dice(2);
  std::vector<std::string> sets = sets_of(run, "hit", {"parallel.dp=2", "parallel.tp=2"});
  sets.emplace_back("train.steps=100000");
  Program program(run.words("train", sets));
  ASSERT_TRUE(kill_some(program, run, "hit", 1, dice));
  program.send(SIGTERM);
  const Ended ended = program.wait(60);
  EXPECT_EQ(ended.exit_code, 143) << ended.err;
  expect_parts(ended.err, {"SIGTERM: saved at step "});
  EXPECT_EQ(num_events(run, "hit", "recovered"), 1u);
}

}  // namespace
}  // namespace weft::testing
