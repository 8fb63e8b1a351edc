// tests/e2e/launched_test.cpp: `weft train` once per rank, with the variables of torchrun or mpirun
// (the real torchrun: tests/interop/launchers_interop.py).
#include <gtest/gtest.h>

#include <csignal>

#include "tests/e2e/tiny_run.h"

namespace weft::testing {
namespace {

using Variables = std::map<std::string, std::string>;

Variables torch(int rank, int size, const std::string& port = "29500") {
  return {{"RANK", std::to_string(rank)},       {"WORLD_SIZE", std::to_string(size)},
          {"LOCAL_RANK", std::to_string(rank)}, {"LOCAL_WORLD_SIZE", std::to_string(size)},
          {"MASTER_ADDR", "127.0.0.1"},         {"MASTER_PORT", port}};
}

Variables open_mpi(int rank, int size) {
  return {{"OMPI_COMM_WORLD_RANK", std::to_string(rank)},
          {"OMPI_COMM_WORLD_SIZE", std::to_string(size)},
          {"OMPI_COMM_WORLD_LOCAL_RANK", std::to_string(rank)},
          {"OMPI_COMM_WORLD_LOCAL_SIZE", std::to_string(size)}};
}

using Ranks = std::vector<std::unique_ptr<Program>>;

Ranks start(const TinyRun& run, const std::vector<std::string>& sets, int size,
            Variables (*variables)(int, int), const std::vector<std::string>& more = {}) {
  Ranks ranks;
  for (int rank = 0; rank < size; ++rank) {
    StartOptions options;
    options.env = variables(rank, size);
    ranks.push_back(std::make_unique<Program>(run.words("train", sets, more), options));
  }
  return ranks;
}

Variables of_torch(int rank, int size) { return torch(rank, size); }

const std::vector<std::string> kFour = {"parallel.mode=exact", "parallel.dp=2", "parallel.tp=2",
                                        "parallel.shard=zero3"};

class LaunchedBy : public ::testing::TestWithParam<const char*> {};

TEST_P(LaunchedBy, RanksHaveTheBitsOfTheSupervisorsRanks) {
  const TinyRun run;
  const std::string name = GetParam();
  run.train_well(with(kFour, {"name=own"}));
  const Ranks ranks =
      start(run, with(kFour, {"name=" + name}), 4, name == "mpi" ? open_mpi : of_torch);
  for (const auto& rank : ranks) {
    const Ended ended = rank->wait();
    EXPECT_EQ(ended.exit_code, 0) << ended.err;
  }
  EXPECT_EQ(hash_of(run.dir(name)), hash_of(run.dir("own")));
  EXPECT_EQ(metric_texts(run.dir(name), "loss"), metric_texts(run.dir("own"), "loss"));
  EXPECT_FALSE(std::filesystem::exists(run / ("runs/." + name + ".rendezvous")));
}

INSTANTIATE_TEST_SUITE_P(Launchers, LaunchedBy, ::testing::Values("torch", "mpi"),
                         [](const auto& p) { return std::string(p.param); });

// Two machines with two ranks each, which are one.
Variables of_two_nodes(int rank, int size) {
  Variables env = torch(rank, size);
  env["LOCAL_RANK"] = std::to_string(rank % 2);
  env["LOCAL_WORLD_SIZE"] = "2";
  env["WEFT_NODES_ON_LO"] = "1";
  return env;
}

TEST(Launched, RanksOfSeveralMachinesHaveTheSameBits) {
  const TinyRun run;
  run.train_well(with(kFour, {"name=own"}));
  const Ranks ranks = start(run, with(kFour, {"name=nodes"}), 4, of_two_nodes);
  for (const auto& rank : ranks) {
    const Ended ended = rank->wait();
    EXPECT_EQ(ended.exit_code, 0) << ended.err;
  }
  EXPECT_EQ(hash_of(run.dir("nodes")), hash_of(run.dir("own")));
}

TEST(Launched, SeveralMachinesNeedANetwork) {
  const TinyRun run;
  StartOptions options;
  options.env = of_two_nodes(0, 4);
  options.env.erase("WEFT_NODES_ON_LO");
  const Ended ended = run_to_end(run.words("train", kFour), options);
  EXPECT_EQ(ended.exit_code, 2);
  expect_parts(ended.err, {"launch.interface is lo", "launch.nodes is 2"});
}

// A rank that never comes.
TEST(Launched, AMissingRankIsNamed) {
  const TinyRun run;
  StartOptions options;
  options.env = torch(0, 2);
  const Ended ended =
      run_to_end(run.words("train", {"parallel.dp=2", "launch.join_timeout_s=1"}), options);
  EXPECT_EQ(ended.exit_code, 75);
  expect_parts(ended.err, {"of 2 ranks (WORLD_SIZE), these did not come within 1 s: 1"});
}

class LaunchedAndKilled : public ::testing::TestWithParam<size_t> {};

TEST_P(LaunchedAndKilled, ADeadRankEndsTheOthersWith75AndTheNextStartResumes) {
  const TinyRun run;
  const size_t dead = GetParam();
  const auto sets = with(kFour, {"train.steps=60", "checkpoint.every=5"});
  run.train_well(with(sets, {"name=own"}));
  const auto hit = with(sets, {"name=hit"});
  const auto dir = run.dir("hit");
  Ranks ranks = start(run, hit, 4, of_torch);
  ASSERT_TRUE(ranks[0]->wait_until([&] { return metric_texts(dir, "loss").size() > 12; }));
  ranks[dead]->send(SIGKILL);
  for (size_t i = 0; i < 4; ++i) {
    const Ended ended = ranks[i]->wait(30);
    if (i == dead) {
      EXPECT_EQ(ended.signal, SIGKILL);
    } else {
      EXPECT_EQ(ended.exit_code, 75) << i << ended.err;
    }
  }
  // Only rank 0 writes into the run's directory.
  EXPECT_EQ(event_lines(dir, "rank failed").size(), dead == 0 ? 0u : 1u);
  ranks = start(run, hit, 4, of_torch);
  for (const auto& rank : ranks) EXPECT_EQ(rank->wait().exit_code, 0);
  EXPECT_EQ(hash_of(dir / "final"), hash_of(run.dir("own") / "final"));
  EXPECT_EQ(metric_texts(dir, "loss"), metric_texts(run.dir("own"), "loss"));
}

INSTANTIATE_TEST_SUITE_P(Rank, LaunchedAndKilled, ::testing::Values(0, 3),
                         ::testing::PrintToStringParamName());

TEST(Launched, ASignalToOneRankIsSavedByAll) {
  const TinyRun run;
  const Ranks ranks = start(run, with(kFour, {"train.steps=100000"}), 4, of_torch);
  ASSERT_TRUE(ranks[0]->wait_until([&] { return metric_texts(run.dir(), "loss").size() > 2; }));
  ranks[2]->send(SIGTERM);
  for (const auto& rank : ranks) {
    const Ended ended = rank->wait(30);
    EXPECT_EQ(ended.exit_code, 143) << ended.err;
  }
  EXPECT_FALSE(event_lines(run.dir(), "checkpoint").empty());
}

TEST(Launched, AnErrorOfRankZeroReachesAll) {
  const TinyRun run;
  run.train_well({"name=tiny"});
  const Ranks ranks = start(run, {"parallel.dp=2"}, 2, of_torch, {"--resume", "never"});
  const Ended zero = ranks[0]->wait(30), one = ranks[1]->wait(30);
  EXPECT_EQ(zero.exit_code, 2) << zero.err;
  EXPECT_EQ(one.exit_code, 75) << one.err;
  expect_parts(one.err, {"rank 0: ", "--resume never would discard them"});
}

TEST(Launched, WhatDoesNotFitIsRefused) {
  const TinyRun run;
  const auto refused = [&](const Variables& env, const std::vector<std::string>& sets,
                           const std::vector<std::string>& more = {}) {
    StartOptions options;
    options.env = env;
    const Ended ended = run_to_end(run.words("train", sets, more), options);
    EXPECT_EQ(ended.exit_code, 2) << ended.err;
    EXPECT_FALSE(std::filesystem::exists(run / "runs"));
    return ended.err;
  };
  expect_parts(refused(torch(0, 4), {"parallel.dp=2"}),
               {"torchrun has started 4 ranks (WORLD_SIZE), but parallel.dp=2 x parallel.tp=1 "
                "needs 2",
                "start 2 ranks, or set parallel.dp=4"});
  expect_parts(refused({{"WORLD_SIZE", "2"}}, {"parallel.dp=2"}), {"RANK is not"});
  Variables again = torch(0, 2);
  again["TORCHELASTIC_RESTART_COUNT"] = "1";
  expect_parts(refused(again, {"parallel.dp=2"}, {"--overwrite"}),
               {"--overwrite would discard what the run has saved"});
}

TEST(Launched, OneRankIsAnOrdinaryRun) {
  const TinyRun run;
  StartOptions options;
  options.env = torch(0, 1);
  EXPECT_EQ(run_to_end(run.words("train", {}), options).exit_code, 0);
  EXPECT_TRUE(std::filesystem::exists(run.dir() / "final"));
}

}  // namespace
}  // namespace weft::testing
