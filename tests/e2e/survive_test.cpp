// tests/e2e/survive_test.cpp: ranks that are killed, and runs that end as if none had been.
#include <dirent.h>
#include <fmt/core.h>
#include <gtest/gtest.h>

#include <chrono>
#include <csignal>
#include <random>
#include <set>
#include <sstream>
#include <thread>

#include "tests/e2e/tiny_run.h"

namespace weft::testing {
namespace {

std::vector<pid_t> children_of(pid_t pid) {
  std::istringstream words(slurp(fmt::format("/proc/{0}/task/{0}/children", pid)));
  std::vector<pid_t> found;
  for (pid_t child = 0; words >> child;) found.push_back(child);
  return found;
}

bool is_any_left(const TinyRun& run) {
  bool is_left = false;
  DIR* proc = ::opendir("/proc");
  while (const dirent* entry = ::readdir(proc)) {
    if (std::atoi(entry->d_name) <= 0) continue;
    const std::string path = fmt::format("/proc/{}/cmdline", entry->d_name);
    is_left |= contains(slurp(path), run.file().string());
  }
  ::closedir(proc);
  return is_left;
}

size_t num_steps(const TinyRun& run, const std::string& name) {
  return metric_texts(run.dir(name), "loss").size();
}

size_t num_events(const TinyRun& run, const std::string& name, const char* event) {
  if (!std::filesystem::exists(run.dir(name) / "events.jsonl")) return 0;
  return event_lines(run.dir(name), event).size();
}

// Checkpoints, the best, final/ and metrics are those of a run that nothing disturbed.
void expect_same_run(const TinyRun& run, const std::string& a, const std::string& b) {
  for (const char* part : {"", "final", "checkpoints/best"})
    EXPECT_EQ(hash_of(run.dir(a) / part), hash_of(run.dir(b) / part)) << b << " " << part;
  for (const char* key : {"step", "epoch", "loss", "grad_norm", "lr", "tokens", "target_tokens",
                          "eval_loss", "mean_loss"})
    EXPECT_EQ(metric_texts(run.dir(a), key), metric_texts(run.dir(b), key)) << b << " " << key;
  const auto names = [&](const std::string& name) {
    std::set<std::string> found;
    for (const auto& entry : std::filesystem::directory_iterator(run.dir(name) / "checkpoints"))
      found.insert(entry.path().filename());
    return found;
  };
  EXPECT_EQ(names(a), names(b));
}

std::vector<std::string> sets_of(const TinyRun& run, const std::string& name,
                                 const std::vector<std::string>& more) {
  std::vector<std::string> sets = {"name=" + name,
                                   "train.steps=400",
                                   "checkpoint.every=30",
                                   "checkpoint.keep=30",
                                   "train.eval_every=70",
                                   "launch.max_restarts=-1",
                                   "data.eval=[" + (run / "eval.txt").string() + "]"};
  sets.insert(sets.end(), more.begin(), more.end());
  return sets;
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

TEST(Survive, KilledRanksChangeNothing) {
  const std::vector<std::string> layouts[] = {
      {"parallel.dp=2", "parallel.tp=2", "parallel.shard=zero3"},
      {"parallel.dp=2", "parallel.tp=2", "parallel.shard=zero3", "parallel.mode=exact"},
      {"parallel.dp=2"},
      {"parallel.dp=2", "parallel.shard=zero1", "train.precision=bf16", "checkpoint.async=false"},
      {"parallel.tp=2", "data.layout=dynamic", "launch.snapshot_every=7"}};
  std::mt19937 dice(3);
  for (const std::vector<std::string>& layout : layouts) {
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

// Nothing is in memory yet: all ranks are started again.
TEST(Survive, ADeathBeforeTheFirstStep) {
  const TinyRun run;
  const std::vector<std::string> layout = {"parallel.dp=2"};
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
  expect_parts(ended.err, {"rank 0 was killed by SIGKILL; continuing from storage"});
  const std::vector<Json> started = event_lines(run.dir("hit"), "started");
  ASSERT_EQ(started.size(), 2u);  // the second --overwrite did not count
  EXPECT_GE(started[1].at("step").as_int(), 60);
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
    expect_parts(ended.err, {"continuing from step ", "(restart 1 of 1)\n", "error: rank ",
                             "was killed by SIGKILL\n", "the same command resumes"});
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

// It neither computes nor dies: the others miss it, its stack is read, and it is replaced.
TEST(Survive, AStoppedRankIsFoundAndReplaced) {
  const TinyRun run;
  const std::vector<std::string> layout = {"parallel.dp=2", "launch.hang_timeout_s=1"};
  run.train_well(sets_of(run, "calm", layout));
  Program program(run.words("train", sets_of(run, "hit", layout)));
  ASSERT_TRUE(program.wait_until([&] { return num_steps(run, "hit") > 40; }));
  const pid_t rank = children_of(program.pid()).at(1);
  ::kill(rank, SIGSTOP);
  const Ended ended = program.wait();
  EXPECT_EQ(ended.exit_code, 0) << ended.err;
  expect_parts(ended.err, {"rank 1 hangs and is killed; its stack is in ", "rank 0 waited ",
                           " for rank 1 (last seen in ", "continuing from step "});
  // Where it was stopped is not known, but how it got there is.
  expect_parts(slurp(run.dir("hit") / "log/rank-00001.log"),
               {"the rank hangs; its stack:\nthread ", "weft::Trainer::run()", " (weft)\n"});
  EXPECT_EQ(num_events(run, "hit", "recovered"), 1u);
  expect_same_run(run, "calm", "hit");
  EXPECT_FALSE(is_any_left(run));
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
