// tests/dist/late_commit_test.cpp: a rank that stood still between its last write and the commit
// commits nothing.
#include <gtest/gtest.h>

#include <chrono>
#include <thread>

#include "net/heartbeat.h"
#include "tests/dist/gpu_trainer.h"

namespace weft::testing {
namespace {

namespace fs = std::filesystem;

const std::vector<std::string> kSets = {"parallel.dp=2", "checkpoint.async=false"};

// While rank 0 writes its file of step 4, and rank 1 has written all of its own: all that is left
// is rank 0's commit.
bool is_last_write(const GpuTrainer& trainer) {
  const fs::path writing = trainer.checkpoint(4).string() + ".writing";
  if (!fs::exists(writing / "rank-00000.safetensors")) return false;
  for (int i = 0; i < 10'000 && !fs::exists(writing / "index-rank-00001.json"); ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  return true;
}

std::vector<RankEnd> train(const GpuTrainer& trainer, const std::shared_ptr<ShmWorld>& world,
                           const std::function<void()>& stand_still) {
  bool was_still = false;
  const auto ends = trainer.train(
      GpuKind::kShared, kSets,
      [&](int rank, FakeDevice& device) {
        if (rank != 0) return;
        device.on_read = [&] {
          if (was_still || !is_last_write(trainer)) return;
          was_still = true;
          stand_still();
        };
      },
      world);
  EXPECT_TRUE(was_still);
  return ends;
}

bool is_committed(const GpuTrainer& trainer, int64_t step) {
  return fs::exists(trainer.checkpoint(step) / "COMMITTED");
}

TEST(LateCommit, ALeaseThatIsOverCommitsNothing) {
  const GpuTrainer trainer;
  const auto world = ShmWorld::create({.num_ranks = 2});
  const auto ends = train(trainer, world, [&] { world->set_lease(boot_ms() - 1); });
  for (const RankEnd& end : ends) EXPECT_EQ(end.exit_code, 75) << end.message;
  EXPECT_NE(ends[0].message.find("lease"), std::string::npos) << ends[0].message;
  EXPECT_TRUE(is_committed(trainer, 2));
  EXPECT_FALSE(fs::exists(trainer.checkpoint(4)));
  EXPECT_FALSE(fs::exists(trainer.checkpoint(4).string() + ".writing/COMMITTED"));
}

// As after a pause of the whole machine: the agent, which stood still too, has its answer soon.
TEST(LateCommit, ALeaseThatIsRenewedInTimeCommits) {
  const GpuTrainer trainer;
  const auto world = ShmWorld::create({.num_ranks = 2});
  std::thread agent;
  const auto ends = train(trainer, world, [&] {
    world->set_lease(boot_ms() - 1);
    agent = std::thread([&] {
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
      world->set_lease(boot_ms() + 60'000);
    });
  });
  agent.join();
  for (const RankEnd& end : ends) EXPECT_EQ(end.exit_code, 0) << end.message;
  EXPECT_TRUE(is_committed(trainer, 4));
  EXPECT_TRUE(is_committed(trainer, 6));
}

}  // namespace
}  // namespace weft::testing
