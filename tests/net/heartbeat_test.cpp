// tests/net/heartbeat_test.cpp: what a rank notes is what others read, also across processes.
#include "net/heartbeat.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include "net/shm_world.h"

namespace weft {
namespace {

TEST(Heartbeat, PhasesNestAndEveryNoteIsASign) {
  Heartbeat beat{};
  beat.clear();
  EXPECT_EQ(beat.read().phase, Phase::kStarting);
  beat.note(Phase::kPasses, 12);
  beat.note(Phase::kUpdate, 12);
  EXPECT_FALSE(beat.read().has_stepped);
  const RankSign before = beat.read();
  EXPECT_LE(monotonic_ms() - before.at_ms, 10'000);
  {
    const ScopedPhase saving(&beat, Phase::kSaving);
    EXPECT_EQ(beat.read().phase, Phase::kSaving);
    EXPECT_EQ(beat.read().step, 12);
    const ScopedWaiting waiting(&beat);
    EXPECT_TRUE(beat.read().is_waiting);
  }
  const RankSign after = beat.read();
  EXPECT_EQ(after.phase, Phase::kUpdate);
  EXPECT_FALSE(after.is_waiting);
  EXPECT_EQ(after.count, before.count + 2);
  beat.note(Phase::kData, 13);
  EXPECT_TRUE(beat.read().has_stepped);
  beat.note_call(77);
  EXPECT_EQ(beat.read().last_call, 77u);
  const ScopedPhase nobody(nullptr, Phase::kSaving);
}

TEST(Heartbeat, OfAnotherProcess) {
  WorldOptions options;
  options.num_ranks = 2;
  const auto world = ShmWorld::create(options);
  const pid_t pid = ::fork();
  if (pid == 0) {
    world->heartbeat(1).note(Phase::kEvaluating, 1'000'000'000'000);
    ::_exit(0);
  }
  ::waitpid(pid, nullptr, 0);
  EXPECT_EQ(world->heartbeat(1).read().phase, Phase::kEvaluating);
  EXPECT_EQ(world->heartbeat(1).read().step, 1'000'000'000'000);
  EXPECT_EQ(world->heartbeat(0).read().count, 0u);
}

}  // namespace
}  // namespace weft
