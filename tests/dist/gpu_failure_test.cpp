// tests/dist/gpu_failure_test.cpp: a GPU that fails in the middle of a run, a rank that dies.
#include <gtest/gtest.h>
#include <unistd.h>

#include <map>
#include <tuple>

#include "checkpoint/checkpoint.h"
#include "checkpoint/list.h"
#include "tests/dist/gpu_trainer.h"

namespace weft::testing {
namespace {

std::string lost_gpu(int gpu) {
  char host[256] = {};
  ::gethostname(host, sizeof host - 1);
  return fmt::format("GPU {} of {} failed in ", gpu, host);
}

struct HealthyRun {
  CallCounts calls;  // of one rank's device
  std::vector<std::string> losses;
};

// Made once for each kind and configuration.
const HealthyRun& healthy_run(GpuKind kind, const std::vector<std::string>& sets, int counted) {
  static std::map<std::tuple<GpuKind, std::vector<std::string>, int>, HealthyRun> runs;
  HealthyRun& run = runs[{kind, sets, counted}];
  if (!run.losses.empty()) return run;
  const GpuTrainer trainer;
  const auto ends = trainer.train(kind, sets, [&](int rank, FakeDevice& device) {
    if (rank == counted) device.count_calls_in(&run.calls);
  });
  for (const RankEnd& end : ends) EXPECT_EQ(end.exit_code, 0) << end.message;
  run.losses = trainer.metrics("loss");
  return run;
}

void expect_whole_checkpoints(const GpuTrainer& trainer) {
  const auto saved = list_checkpoints(trainer.dir());
  ASSERT_FALSE(saved.empty());
  for (const auto& folder : saved) {
    EXPECT_TRUE(std::filesystem::exists(folder / "COMMITTED")) << folder;
    EXPECT_NO_THROW(CheckpointReader{folder}) << folder;
  }
}

// Wherever the error shows: the rank exits with 75 and names the GPU, and the same command resumes
// from the last checkpoint to the same bits.
class AFailingGpu : public ::testing::TestWithParam<const char*> {};

TEST_P(AFailingGpu, EndsARunOfOneRankAndLosesNothing) {
  const GpuTrainer trainer;
  // Saved between steps, unless the copy for saving beside them is what fails.
  const bool is_async = std::string(GetParam()) == "read_aside";
  const std::vector<std::string> sets = {is_async ? "checkpoint.async=true"
                                                  : "checkpoint.async=false"};
  const HealthyRun& healthy = healthy_run(GpuKind::kShared, sets, 0);
  const int64_t calls = healthy.calls.of(GetParam());
  ASSERT_EQ(healthy.losses.size(), 6u);
  ASSERT_GT(calls, 6);
  const auto ends = trainer.train(GpuKind::kShared, sets, [&](int rank, FakeDevice& device) {
    const int64_t number = is_async ? calls * 3 / 4 : calls / 2;  // after a checkpoint
    device.fault = {GetParam(), number, "cudaErrorIllegalAddress", rank};
  });
  EXPECT_EQ(ends[0].exit_code, 75) << ends[0].message;
  EXPECT_EQ(ends[0].message.find(lost_gpu(0)), 0u) << ends[0].message;
  EXPECT_NE(ends[0].message.find("cudaErrorIllegalAddress"), std::string::npos);
  const size_t done = trainer.metrics("loss").size();
  EXPECT_GT(done, 1u);
  EXPECT_LT(done, 6u);
  expect_whole_checkpoints(trainer);
  trainer.train_well(GpuKind::kShared);
  EXPECT_EQ(trainer.metrics("loss"), healthy.losses);
}

TEST_P(AFailingGpu, EndsAllRanksAndNamesItself) {
  for (const GpuKind kind : {GpuKind::kShared, GpuKind::kNcclOnCpu}) {
    const GpuTrainer trainer;
    const std::vector<std::string> sets = {"parallel.dp=2", "parallel.shard=zero1",
                                           "train.micro_batch=2"};
    const HealthyRun& healthy = healthy_run(kind, sets, 1);
    const int64_t calls = healthy.calls.of(GetParam());
    if (calls == 0) continue;  // ranks that share a GPU capture nothing
    const auto ends = trainer.train(kind, sets, [&](int rank, FakeDevice& device) {
      if (rank == 1) device.fault = {GetParam(), calls * 3 / 4, "cudaErrorECCUncorrectable", rank};
    });
    for (const RankEnd& end : ends) {
      EXPECT_EQ(end.exit_code, 75) << end.message;
      EXPECT_NE(end.message.find(lost_gpu(1)), std::string::npos) << end.message;
    }
    expect_whole_checkpoints(trainer);
    trainer.train_well(kind, sets);
    if (kind == GpuKind::kShared) {
      EXPECT_EQ(trainer.metrics("loss"), healthy.losses);
    } else {
      EXPECT_EQ(trainer.metrics("loss").size(), healthy.losses.size());
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Calls, AFailingGpu,
                         ::testing::Values("copy", "replay", "event", "read", "wait", "read_aside"),
                         [](const auto& p) { return std::string(p.param); });

// Other failures keep their own exit codes.
TEST(GpuFailure, OutOfMemoryAndBugsAreNotALostDevice) {
  const std::pair<const char*, int> cases[] = {{"cudaErrorMemoryAllocation", 1},
                                               {"cudaErrorInvalidValue", 70}};
  for (const auto& [name, exit_code] : cases) {
    const char* const error = name;
    const GpuTrainer trainer;
    const auto ends = trainer.train(GpuKind::kShared, {}, [&](int rank, FakeDevice& device) {
      device.fault = {"replay", 5, error, rank};
    });
    EXPECT_EQ(ends[0].exit_code, exit_code) << ends[0].message;
  }
}

TEST(GpuFailure, ADeadRankEndsTheOthersAndTheRunResumes) {
  for (const GpuKind kind : {GpuKind::kShared, GpuKind::kNcclOnCpu}) {
    const GpuTrainer trainer;
    const std::vector<std::string> sets = {"parallel.dp=2", "parallel.mode=exact"};
    trainer.train_well(kind, sets);
    const auto wanted = trainer.metrics("loss");
    trainer.clear();
    const auto ends = trainer.train(kind, sets, [&](int rank, FakeDevice& device) {
      if (rank != 1) return;
      device.fault = {"copy", 60, "", rank};
      device.on_fault = [] { throw Killed{}; };
    });
    EXPECT_EQ(ends[1].exit_code, 137) << ends[1].message;
    EXPECT_EQ(ends[0].exit_code, 75) << ends[0].message;
    EXPECT_NE(ends[0].message.find("rank 1 was killed by SIGKILL"), std::string::npos)
        << ends[0].message;
    ASSERT_LT(trainer.metrics("loss").size(), 6u);
    trainer.train_well(kind, sets);
    EXPECT_EQ(trainer.metrics("loss"), wanted);
  }
}

// Freeing memory waits for the GPU, also that of a rank that fails while calls of NCCL are queued
// which the others, slower, never join: it must end those first.
TEST(GpuFailure, QueuedCallsAreAbortedBeforeMemoryIsFreed) {
  const std::vector<std::string> sets = {"parallel.dp=2", "parallel.shard=zero1",
                                         "train.micro_batch=2"};
  for (const char* call : {"event", "read", "wait"}) {
    const int64_t calls = healthy_run(GpuKind::kNcclOnCpu, sets, 1).calls.of(call);
    for (int64_t number = calls / 2; number < calls / 2 + 3; ++number) {
      const GpuTrainer trainer;
      const auto ends = trainer.train(GpuKind::kNcclOnCpu, sets, [&](int rank, FakeDevice& device) {
        if (rank == 0) device.copy_ms = 20;
        if (rank == 1) device.fault = {call, number, "cudaErrorECCUncorrectable", rank};
      });
      for (const RankEnd& end : ends) EXPECT_EQ(end.exit_code, 75) << end.message;
    }
  }
}

// Rank 0 has more to do at the end; the others keep their arenas until it has unmapped them.
TEST(GpuFailure, AnArenaIsFreedWhenNobodyHasItMapped) {
  const auto freed_too_early = [] {
    const std::lock_guard lock(FakeDevice::mappings().mutex);
    return FakeDevice::mappings().num_freed_too_early;
  };
  const int before = freed_too_early();
  const GpuTrainer trainer;
  trainer.train_well(GpuKind::kShared, {"parallel.dp=2", "parallel.tp=2", "train.steps=2"});
  EXPECT_EQ(freed_too_early(), before);
  const std::lock_guard lock(FakeDevice::mappings().mutex);
  for (const auto& [memory, count] : FakeDevice::mappings().open) EXPECT_EQ(count, 0);
}

}  // namespace
}  // namespace weft::testing
