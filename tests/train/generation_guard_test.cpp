// tests/train/generation_guard_test.cpp: who may still write, by lease and generation.
#include "train/generation_guard.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include "base/error.h"
#include "net/heartbeat.h"

namespace weft {
namespace {

std::shared_ptr<ShmWorld> make_world() { return ShmWorld::create({.num_ranks = 2}); }

std::string refusal(const GenerationGuard& guard) {
  try {
    guard.check(30);
    return "";
  } catch (const PeerError& e) {
    return e.what();
  }
}

TEST(GenerationGuard, WithoutASupervisorNothingIsRefused) {
  EXPECT_EQ(refusal(GenerationGuard(nullptr)), "");
}

TEST(GenerationGuard, AWorldWithoutALeaseHasNoEnd) {
  EXPECT_EQ(refusal(GenerationGuard(make_world())), "");
}

TEST(GenerationGuard, ALeaseCountsUntilItIsOver) {
  const auto world = make_world();
  const GenerationGuard guard(world);
  world->set_lease(boot_ms() + 60'000);
  EXPECT_EQ(refusal(guard), "");
  world->set_lease(boot_ms() - 1);
  EXPECT_NE(refusal(guard).find("lease"), std::string::npos);
  world->set_lease(boot_ms() + 60'000);
  EXPECT_EQ(refusal(guard), "") << "the agent has renewed it";
}

// The supervisor resets the world in its own process; this one has not parked.
TEST(GenerationGuard, AnEarlierGenerationMayNotWrite) {
  const auto supervisor = make_world();
  const std::shared_ptr<ShmWorld> rank = ShmWorld::attach(::dup(supervisor->fd()));
  const GenerationGuard guard(rank);
  EXPECT_EQ(refusal(guard), "");
  supervisor->reset({}, -1);
  EXPECT_NE(refusal(guard).find("generation 1 of the ranks has begun; this rank is of 0"),
            std::string::npos)
      << refusal(guard);
  EXPECT_EQ(refusal(GenerationGuard(ShmWorld::attach(::dup(supervisor->fd())))), "");
}

}  // namespace
}  // namespace weft
