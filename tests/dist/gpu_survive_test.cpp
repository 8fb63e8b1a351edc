// tests/dist/gpu_survive_test.cpp: ranks on GPUs that die or lose their GPU: the run goes on in
// memory, to the bits of a calm one.
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <mutex>
#include <random>

#include "checkpoint/compare.h"
#include "checkpoint/logical.h"
#include "tests/dist/gpu_trainer.h"

namespace weft::testing {
namespace {

constexpr int64_t kSurviveSteps = 8;

struct SurviveCase {
  const char* name;
  GpuKind kind;
  Sets sets;
};

const SurviveCase kSurviveCases[] = {
    {"SharedZero3", GpuKind::kShared, {"parallel.dp=2", "parallel.shard=zero3"}},
    {"SharedMeshExact",
     GpuKind::kShared,
     {"parallel.dp=2", "parallel.tp=2", "parallel.mode=exact"}},
    {"SharedMeshZero3",
     GpuKind::kShared,
     {"parallel.dp=2", "parallel.tp=2", "parallel.shard=zero3"}},
    {"NcclZero1", GpuKind::kNcclOnCpu, {"parallel.dp=2", "parallel.shard=zero1"}},
    {"NcclMeshExact",
     GpuKind::kNcclOnCpu,
     {"parallel.dp=2", "parallel.tp=2", "parallel.mode=exact"}},
    {"NcclTensorFp16", GpuKind::kNccl, {"parallel.tp=2", "train.precision=fp16"}},
    {"SharedSavesNow", GpuKind::kShared, {"parallel.dp=2", "checkpoint.async=false"}},
};

Sets sets_of(const SurviveCase& c) {
  return with(c.sets, {"train.steps=" + std::to_string(kSurviveSteps), "train.micro_batch=2",
                       "checkpoint.every=3", "checkpoint.keep=5"});
}

// What a calm run leaves.
void expect_same_run(const GpuTrainer& calm, const GpuTrainer& hit, const std::string& what) {
  for (const char* key : {"step", "loss", "grad_norm", "lr", "tokens", "target_tokens"})
    EXPECT_EQ(hit.metrics(key), calm.metrics(key)) << what << " " << key;
  for (const int64_t step : {int64_t{3}, int64_t{6}, kSurviveSteps}) {
    const Comparison c = compare_models(open_logical(calm.checkpoint(step).string()),
                                        open_logical(hit.checkpoint(step).string()));
    EXPECT_TRUE(c.states_compared);
    EXPECT_TRUE(c.differences.empty()) << what << " step " << step;
  }
}

void expect_well(const GpuTrainer::Survived& survived, const std::string& what) {
  for (const RankEnd& end : survived.ends)
    EXPECT_EQ(end.exit_code, 0) << what << ": " << end.message;
}

// The calls that one rank's device gets in a calm run.
int64_t count_calls(const GpuTrainer& trainer, const SurviveCase& c) {
  CallCounts counts;
  const auto ends = trainer.train(c.kind, sets_of(c), [&](int rank, FakeDevice& device) {
    if (rank == 1) device.count_calls_in(&counts);
  });
  for (const RankEnd& end : ends) EXPECT_EQ(end.exit_code, 0) << end.message;
  return counts.of_all();
}

class GpuSurvive : public ::testing::TestWithParam<SurviveCase> {};

std::string name_of(const ::testing::TestParamInfo<SurviveCase>& info) { return info.param.name; }

// Each death at a random call of a random rank's device; some while the last one is being replaced.
TEST_P(GpuSurvive, RanksThatDieChangeNothing) {
  const SurviveCase& c = GetParam();
  const GpuTrainer calm;
  const int64_t calls = count_calls(calm, c);
  ASSERT_GT(calls, 100);
  const auto seed = static_cast<unsigned>(std::hash<std::string>{}(c.name));
  std::mt19937 dice(seed);
  int64_t in_memory = 0;
  for (int round = 0; round < (std::getenv("FULL") ? 10 : 2); ++round) {
    const GpuTrainer hit;
    std::mutex mutex;
    int num_left = 3;
    const int num_ranks = c.sets.at(1) == "parallel.tp=2" ? 4 : 2;
    int victim = static_cast<int>(dice() % static_cast<unsigned>(num_ranks));
    const auto survived = hit.survive(c.kind, sets_of(c), [&](int rank, FakeDevice& device) {
      const std::lock_guard lock(mutex);
      if (num_left == 0 || (rank != victim && num_left == 3)) return;
      --num_left;
      victim = -1;
      const auto number = 1 + static_cast<int64_t>(dice()) % (num_left == 2 ? calls : calls / 2);
      device.fault = {"any", number, "", rank};
      if (dice() % 3 != 0) device.on_fault = [] { throw Killed{}; };  // else a sticky error
      device.fault.error = "cudaErrorIllegalAddress";
    });
    const std::string what = fmt::format("seed {}, round {}", seed, round);
    expect_well(survived, what);
    EXPECT_GE(survived.num_replaced, 1) << what;
    for (const auto& step : survived.starts) in_memory += step.has_value();
    expect_same_run(calm, hit, what);
  }
  EXPECT_GT(in_memory, 0);
}

INSTANTIATE_TEST_SUITE_P(Layouts, GpuSurvive, ::testing::ValuesIn(kSurviveCases), name_of);

// Only the rank whose GPU failed opens a device again; the others keep theirs, and what they have
// pinned.
TEST(GpuSurviveDevices, SurvivorsKeepTheirDevice) {
  for (const GpuKind kind : {GpuKind::kShared, GpuKind::kNcclOnCpu}) {
    for (const bool can_pin : {true, false}) {
      const SurviveCase c{"", kind, {"parallel.dp=2"}};
      const GpuTrainer calm, hit;
      const int64_t calls = count_calls(calm, c);
      std::atomic<int> num_opened[2] = {};
      const auto survived = hit.survive(kind, sets_of(c), [&](int rank, FakeDevice& device) {
        device.can_pin = can_pin;
        if (++num_opened[rank] == 1 && rank == 1)
          device.fault = {"any", calls * 2 / 3, "cudaErrorECCUncorrectable", rank};
      });
      expect_well(survived, "");
      EXPECT_EQ(survived.num_replaced, 1);
      ASSERT_EQ(survived.starts.size(), 1u);
      EXPECT_TRUE(survived.starts[0].has_value());
      EXPECT_EQ(num_opened[0], 1);
      EXPECT_EQ(num_opened[1], 2);
      expect_same_run(calm, hit, "");
    }
  }
}

// Ranks as processes: what one has queued never ends. The others miss it, where it waits is
// recorded, and it is replaced, while they keep their processes.
TEST(GpuSurviveDevices, AQueueThatNeverEndsIsAHang) {
  const GpuTrainer calm, hit;
  const SurviveCase c{"", GpuKind::kShared, {"parallel.dp=2"}};
  const int64_t calls = count_calls(calm, c);
  const std::filesystem::path folder = hit.dir().parent_path().parent_path();
  std::string command = fmt::format("HANG='1 {}' timeout 120 {} {}", calls * 2 / 3,
                                    WEFT_GPU_RANK_PROGRAM, (folder / "run.yaml").string());
  for (const std::string& key : with(sets_of(c), {"launch.hang_timeout_s=4"})) command += " " + key;
  command += " 2>" + (folder / "errors").string();
  EXPECT_EQ(std::system(command.c_str()), 0) << text_of(folder / "errors");
  const std::string events = text_of(hit.dir() / "events.jsonl");
  const std::string log = text_of(hit.dir() / "log/rank-00001.log");
  for (const char* part : {"\"rank_hung\"", "\"rank_died\"", "\"recovered\""})
    EXPECT_NE(events.find(part), std::string::npos) << part << " in " << events;
  EXPECT_EQ(events.find("\"started\""), events.rfind("\"started\"")) << "storage was read";
  for (const char* part :
       {"the rank hangs (", "; last collective: ", "FakeDevice::", "Trainer::run"})
    EXPECT_NE(log.find(part), std::string::npos) << part << " in " << log;
  expect_same_run(calm, hit, "");
}

// A GPU that cannot be opened again is a rank that is lost each time, not wrong input.
TEST(GpuSurviveDevices, AGpuThatIsGoneIsALostRank) {
  const GpuTrainer calm, hit;
  const SurviveCase c{"", GpuKind::kShared, {"parallel.dp=2"}};
  const int64_t calls = count_calls(calm, c);
  std::atomic<int> num_opened{0};
  const auto survived = hit.survive(c.kind, sets_of(c), [&](int rank, FakeDevice& device) {
    if (rank != 1) return;
    const int number = ++num_opened;
    if (number == 1) device.fault = {"any", calls / 2, "cudaErrorUnknown", rank};
    if (number == 2 || number == 3) throw UserError("no GPU can be used: it fell off the bus");
  });
  expect_well(survived, "");
  EXPECT_EQ(survived.num_replaced, 3);
  expect_same_run(calm, hit, "");
}

}  // namespace
}  // namespace weft::testing
