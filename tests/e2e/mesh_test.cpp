// tests/e2e/mesh_test.cpp: `weft train` with several ranks: files, bits, stops and deaths.
#include <dirent.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <random>
#include <set>
#include <sstream>
#include <thread>

#include "tests/e2e/tiny_run.h"

namespace weft::testing {
namespace {

// Processes of this program that work on the run: read from /proc, by their command line.
std::set<pid_t> processes_of(const TinyRun& run) {
  std::set<pid_t> found;
  DIR* proc = ::opendir("/proc");
  while (const dirent* entry = ::readdir(proc)) {
    const pid_t pid = std::atoi(entry->d_name);
    if (pid <= 0) continue;
    const std::string path = std::string("/proc/") + entry->d_name + "/cmdline";
    if (contains(slurp(path), run.file().string())) found.insert(pid);
  }
  ::closedir(proc);
  return found;
}

void expect_same_bits(const TinyRun& run, const std::string& a, const std::string& b) {
  EXPECT_EQ(hash_of(run.dir(a)), hash_of(run.dir(b)));
  EXPECT_EQ(hash_of(run.dir(a) / "final"), hash_of(run.dir(b) / "final"));
  for (const char* key : {"step", "loss", "grad_norm", "eval_loss"}) {
    EXPECT_EQ(metric_texts(run.dir(a), key), metric_texts(run.dir(b), key)) << key;
  }
}

TEST(Mesh, ExactRunsOfProcessesHaveTheSameBits) {
  const TinyRun run;
  const std::vector<std::string> exact = {"parallel.mode=exact", "train.eval_every=3",
                                          "data.eval=[" + (run / "eval.txt").string() + "]"};
  run.train_well(with(exact, {"name=one"}));
  run.train_well(
      with(exact, {"name=mesh", "parallel.dp=2", "parallel.tp=2", "parallel.shard=zero3"}));
  expect_same_bits(run, "one", "mesh");
  EXPECT_TRUE(std::filesystem::exists(run.dir("mesh") / "log/rank-00003.log"));
  const auto started = event_lines(run.dir("mesh"), "started");
  ASSERT_EQ(started.size(), 1u);
  EXPECT_EQ(started[0].at("ranks").as_int(), 4);
}

// WEFT_COMM=gloo: ranks of one machine communicate as those of several will.
TEST(Mesh, RanksOverTcpHaveTheBitsOfSharedMemoryAndEndTogether) {
  const TinyRun run;
  const StartOptions gloo{.env = {{"WEFT_COMM", "gloo"}}};
  const std::vector<std::string> sets = {"parallel.mode=exact", "parallel.dp=2", "parallel.tp=2"};
  run.train_well(with(sets, {"name=shm"}));
  const Ended ended = run_to_end(run.words("train", with(sets, {"name=gloo"})), gloo);
  ASSERT_EQ(ended.exit_code, 0) << ended.err;
  expect_same_bits(run, "shm", "gloo");

  Program program(run.words("train", with(sets, {"name=killed", "train.steps=100000",
                                                 "launch.max_restarts=0"})),
                  gloo);
  ASSERT_TRUE(
      program.wait_until([&] { return metric_texts(run.dir("killed"), "loss").size() > 1; }));
  std::set<pid_t> ranks = processes_of(run);
  ASSERT_EQ(ranks.size(), 5u);
  ::kill(*ranks.rbegin(), SIGKILL);
  const Ended killed = program.wait(30);
  EXPECT_EQ(killed.exit_code, 75) << killed.err;
  expect_parts(killed.err, {"SIGKILL"});
  EXPECT_TRUE(processes_of(run).empty());
}

// Stopped in one layout, resumed in another, three times.
TEST(Mesh, AnyCheckpointIntoAnyLayout) {
  const TinyRun run;
  const std::vector<std::string> exact = {"parallel.mode=exact", "train.precision=bf16"};
  run.train_well(with(exact, {"name=one"}));
  const auto part = [&](const char* steps, std::vector<std::string> layout) {
    run.train_well(with(with(exact, {"name=parts", std::string("train.steps=") + steps}), layout));
  };
  part("2", {"parallel.dp=2", "parallel.shard=zero3"});
  part("4", {"parallel.tp=2"});
  part("5", {});
  part("6", {"parallel.dp=4", "parallel.shard=zero1"});
  expect_same_bits(run, "one", "parts");
}

// dp 3 and 6 own no groups of rows; into a power of two and back.
TEST(Mesh, AnyCheckpointIntoAnyDp) {
  const TinyRun run;
  const std::vector<std::string> exact = {"parallel.mode=exact", "train.global_batch=12",
                                          "data.eval=[" + (run / "eval.txt").string() + "]"};
  run.train_well(with(exact, {"name=one"}));
  const auto part = [&](const char* steps, std::vector<std::string> layout) {
    run.train_well(with(with(exact, {"name=parts", std::string("train.steps=") + steps}), layout));
  };
  part("1", {"parallel.dp=3"});
  part("2", {"parallel.dp=4", "parallel.shard=zero2"});
  part("3", {"parallel.dp=6", "parallel.shard=zero1"});
  part("4", {"parallel.dp=2"});
  part("5", {"parallel.dp=3", "parallel.tp=2", "parallel.shard=zero3"});
  part("6", {});
  EXPECT_EQ(hash_of(run.dir("one")), hash_of(run.dir("parts")));
  EXPECT_EQ(hash_of(run.dir("one") / "final"), hash_of(run.dir("parts") / "final"));
  for (const char* key : {"loss", "grad_norm", "tokens", "target_tokens"}) {
    EXPECT_EQ(metric_texts(run.dir("one"), key), metric_texts(run.dir("parts"), key)) << key;
  }
}

// 6 heads, 3 key/value heads, tp 2: one of these is on both ranks, but stored once.
TEST(Mesh, KeyValueHeadsBetweenRanksResumeInAnotherTp) {
  const TinyRun run;
  run.change_config("hidden_size", Json(48));
  run.change_config("num_attention_heads", Json(6));
  run.change_config("num_key_value_heads", Json(3));
  run.train_well({"name=one"});
  run.train_well({"name=parts", "train.steps=2", "parallel.tp=2"});
  run.train_well({"name=parts", "train.steps=4", "parallel.dp=2", "parallel.shard=zero3"});
  run.train_well({"name=parts", "parallel.tp=2", "parallel.dp=2", "parallel.shard=zero1"});
  const auto shapes = [&](const std::string& name) {
    std::vector<std::string> lines;
    std::istringstream text(hash_of(run.dir(name) / "final"));
    for (std::string line; std::getline(text, line);)
      lines.push_back(line.substr(0, line.rfind(' ')));
    return lines;
  };
  EXPECT_EQ(shapes("parts"), shapes("one"));
  const auto wanted = metric_lines(run.dir("one")), got = metric_lines(run.dir("parts"));
  ASSERT_GE(wanted.size(), 6u);
  for (const Json& line : wanted) {
    const Json* step = line.find("loss") ? line.find("step") : nullptr;
    if (!step) continue;
    const auto same = std::find_if(got.begin(), got.end(), [&](const Json& other) {
      return other.find("loss") && other.find("step") && other.at("step") == *step;
    });
    ASSERT_NE(same, got.end());
    EXPECT_NEAR(same->at("loss").as_number(), line.at("loss").as_number(), 2e-5);
    EXPECT_NEAR(same->at("grad_norm").as_number(), line.at("grad_norm").as_number(), 1e-4);
  }
}

// More leaves than the two key/value heads: ranks that share a head, and checkpoints that hold it
// once.
TEST(Mesh, CopiesOfKeyValueHeadsHaveTheSameBits) {
  const TinyRun run;
  const std::vector<std::string> exact = {"parallel.mode=exact", "parallel.exact_tp=4",
                                          "train.precision=bf16",
                                          "data.eval=[" + (run / "eval.txt").string() + "]"};
  run.train_well(with(exact, {"name=one", "train.eval_every=3"}));
  run.train_well(with(exact, {"name=four", "train.eval_every=3", "parallel.tp=4"}));
  expect_same_bits(run, "one", "four");
  const auto part = [&](const char* steps, std::vector<std::string> layout) {
    run.train_well(with(with(exact, {"name=parts", std::string("train.steps=") + steps}), layout));
  };
  part("2", {"parallel.tp=4"});
  part("4", {});
  part("5", {"parallel.dp=2", "parallel.tp=2", "parallel.shard=zero3"});
  part("6", {"parallel.tp=4"});
  EXPECT_EQ(hash_of(run.dir("one")), hash_of(run.dir("parts")));
  for (const char* key : {"loss", "grad_norm"}) {
    EXPECT_EQ(metric_texts(run.dir("one"), key), metric_texts(run.dir("parts"), key)) << key;
  }
  const Ended other = run.train(with(exact, {"name=one", "train.steps=9", "parallel.exact_tp=2"}));
  EXPECT_EQ(other.exit_code, 2) << other.err;
  expect_parts(other.err, {"in exact mode with exact_tp=4, but this run has exact_tp=2",
                           "continue with --set parallel.exact_tp=4, or"});
}

TEST(Mesh, AStopSavesAndTheSameCommandResumes) {
  const TinyRun run;
  const std::vector<std::string> sets = {"parallel.mode=exact", "parallel.dp=2",
                                         "parallel.shard=zero2"};
  Program program(run.words("train", with(sets, {"name=stopped", "train.steps=100000"})));
  EXPECT_TRUE(
      program.wait_until([&] { return metric_texts(run.dir("stopped"), "loss").size() > 2; }));
  program.send(SIGTERM);
  const Ended ended = program.wait();
  EXPECT_EQ(ended.exit_code, 143) << ended.err;
  expect_parts(ended.err, {"SIGTERM", "saved at step"});
  EXPECT_TRUE(processes_of(run).empty());
  const std::string end =
      "train.steps=" + std::to_string(metric_texts(run.dir("stopped"), "loss").size() + 4);
  run.train_well(with(sets, {"name=stopped", end}));
  run.train_well(with(sets, {"name=whole", end}));
  expect_same_bits(run, "whole", "stopped");
}

// What only rank 0 can read back must not make the ranks diverge.
TEST(Mesh, AMissingFinalModelIsRewritten) {
  const TinyRun run;
  const std::vector<std::string> sets = {"parallel.dp=2",
                                         "data.eval=[" + (run / "eval.txt").string() + "]"};
  run.train_well(sets);
  const std::string before = hash_of(run.dir() / "final");
  std::filesystem::remove_all(run.dir() / "final");
  run.train_well(sets);
  EXPECT_EQ(hash_of(run.dir() / "final"), before);
}

TEST(Mesh, AnotherRunsCheckpointIsAStart) {
  const TinyRun run;
  run.train_well({"name=first", "parallel.dp=2"});
  run.train_well({"name=second", "parallel.dp=2"},
                 {"--resume", run.checkpoint(6, "first").string()});
  EXPECT_EQ(hash_of(run.dir("first") / "final"), hash_of(run.dir("second") / "final"));
}

TEST(Mesh, OtherExactConstantsAreRefusedOnResume) {
  const TinyRun run;
  run.train_well({"parallel.mode=exact", "train.steps=2"});
  const Ended ended = run.train({"parallel.mode=exact", "parallel.exact_dp=2"});
  EXPECT_EQ(ended.exit_code, 2) << ended.err;
  expect_parts(ended.err, {"exact_dp=8", "--set parallel.exact_dp=8"});
}

// Frozen parameters and a vocabulary of which a piece is empty: ranks that own no part of a bucket.
TEST(Mesh, RanksThatOwnNothingOfABucketStayInStep) {
  const TinyRun run;
  run.change_config("vocab_size", Json(257));
  run.change_config("num_key_value_heads", Json(4));
  const std::vector<std::string> exact = {"parallel.mode=exact",
                                          "model.freeze=[\"*k_proj*\", model.layers.1.*]"};
  run.train_well(with(exact, {"name=one"}));
  for (const char* shard : {"zero1", "zero2", "zero3"}) {
    run.train_well(with(exact, {std::string("name=") + shard, "parallel.dp=2", "parallel.tp=4",
                                std::string("parallel.shard=") + shard}));
    EXPECT_EQ(hash_of(run.dir("one")), hash_of(run.dir(shard))) << shard;
  }
}

class MeshKilled : public ::testing::TestWithParam<unsigned> {};

TEST_P(MeshKilled, ADeadRankThatIsNotReplacedEndsAll) {
  const TinyRun run;
  std::mt19937 random(5 + GetParam());
  Program program(run.words(
      "train", {"parallel.dp=2", "parallel.tp=2", "train.steps=100000", "launch.max_restarts=0"}));
  std::set<pid_t> ranks;
  ASSERT_TRUE(program.wait_until([&] {
    ranks = processes_of(run);
    return ranks.size() == 5;
  }));
  ranks.erase(ranks.begin());  // the supervisor has the lowest number
  std::this_thread::sleep_for(std::chrono::milliseconds(random() % 700));
  auto victim = ranks.begin();
  std::advance(victim, random() % 4);
  ::kill(*victim, SIGKILL);
  const auto start = std::chrono::steady_clock::now();
  const Ended ended = program.wait(30);
  const double seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  EXPECT_EQ(ended.exit_code, 75) << ended.err;
  expect_parts(ended.err, {"was killed by SIGKILL"});
  EXPECT_EQ(ended.err.find("aborted"), std::string::npos) << ended.err;  // reported once
  EXPECT_LT(seconds, 10);  // ten times the promise; interop holds it to one second
  EXPECT_TRUE(processes_of(run).empty());
}

INSTANTIATE_TEST_SUITE_P(Rounds, MeshKilled, ::testing::Range(0u, 5u));

TEST(RunDir, TwoProcessesDoNotTrainInOneDirectory) {
  const TinyRun run;
  Program program(run.words("train", {"train.steps=100000"}), slowly());
  ASSERT_TRUE(program.wait_until([&] { return !metric_texts(run.dir(), "loss").empty(); }));
  for (const std::vector<std::string>& more :
       {std::vector<std::string>{}, std::vector<std::string>{"--overwrite"}}) {
    const Ended second = run.train({"train.steps=100000"}, more);
    EXPECT_EQ(second.exit_code, 2);
    expect_parts(second.err, {"another process is training in", run.dir().string()});
  }
  EXPECT_TRUE(program.is_running());
  program.send(SIGTERM);
  EXPECT_EQ(program.wait().exit_code, 143);
}

TEST(Mesh, WrongLayoutsAreRejectedBeforeAnyRankStarts) {
  const TinyRun run;  // 4 heads, 2 key/value heads, batches of 8 rows
  const auto refused = [&](std::vector<std::string> sets, std::vector<std::string> parts) {
    const Ended ended = run.train(sets);
    EXPECT_EQ(ended.exit_code, 2) << ended.err;
    expect_parts(ended.err, parts);
    EXPECT_FALSE(std::filesystem::exists(run.dir()));
  };
  refused({"parallel.tp=3"}, {"parallel.tp=3", "admissible", "1, 2, 4"});
  refused({"parallel.dp=3"}, {"global_batch 8", "dp 3"});
  refused({"parallel.mode=exact", "parallel.tp=4"},
          {"exact_tp=2", "admissible", "1, 2", "set parallel.exact_tp=4"});
  refused({"parallel.mode=exact", "parallel.exact_rows=2", "parallel.dp=8"},
          {"parallel.dp 8 x exact_rows 2", "parallel.dp to one of 1, 2, 4"});
  refused({"parallel.mode=exact", "parallel.exact_tp=3"},
          {"exact_tp=3", "power of two", "admissible: 1, 2, 4"});
  refused({"parallel.mode=exact", "parallel.exact_tp=8"}, {"exact_tp=8", "admissible: 1, 2, 4"});
  refused({"parallel.mode=exact", "parallel.exact_rows=3"},
          {"exact_rows 3", "a divisor of 8 (1, 2, 4, 8)"});
  refused({"parallel.shard=zero4"}, {"parallel.shard", "zero3"});
  refused({"parallel.dp=2", "launch.interface=nothing0"}, {"nothing0", "available", "lo"});
}

TEST(Mesh, ShardWithOneRankSaysItHasNoEffect) {
  const TinyRun run;
  const Ended ended = run.train({"parallel.shard=zero3"});
  EXPECT_EQ(ended.exit_code, 0);
  expect_parts(ended.err, {"parallel.shard", "no effect"});
}

}  // namespace
}  // namespace weft::testing
