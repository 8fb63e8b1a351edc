// tests/net/shm_world_test.cpp: the segment that ranks share.
#include "net/shm_world.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <thread>

#include "base/error.h"

namespace weft {
namespace {

std::shared_ptr<ShmWorld> make_world(int num_ranks) {
  WorldOptions options;
  options.num_ranks = num_ranks;
  return ShmWorld::create(options);
}

// Another mapping of the same memory, as a started rank has.
std::shared_ptr<ShmWorld> join(const ShmWorld& world) {
  return ShmWorld::attach(::dup(world.fd()));
}

TEST(ShmWorld, ArenasAreReadByPeers) {
  const auto one = make_world(2);
  const auto two = join(*one);
  EXPECT_EQ(two->num_ranks(), 2);
  auto* first = static_cast<char*>(one->take_arena(1, 100));
  auto* second = static_cast<char*>(one->take_arena(1, 5 << 20));
  EXPECT_EQ(first[99], 0);
  std::strcpy(second + 1000, "seen");
  const int64_t place = one->locate(1, second + 1000, 5);
  ASSERT_NE(place, ShmWorld::kPrivate);
  EXPECT_STREQ(two->pointer(1, place), "seen");
  std::strcpy(two->pointer(1, place), "back");
  EXPECT_STREQ(second + 1000, "back");
  EXPECT_EQ(one->pointer(1, place), second + 1000);
}

TEST(ShmWorld, DetectsPrivateMemory) {
  const auto world = make_world(2);
  auto* arena = static_cast<char*>(world->take_arena(0, 1 << 20));
  char elsewhere = 0;
  EXPECT_EQ(world->locate(0, &elsewhere, 1), ShmWorld::kPrivate);
  EXPECT_NE(world->locate(0, arena, 2 << 20), ShmWorld::kPrivate);
  EXPECT_EQ(world->locate(0, arena + 1, 2 << 20), ShmWorld::kPrivate);  // reaches beyond
  EXPECT_EQ(world->locate(1, arena, 1), ShmWorld::kPrivate);            // another rank's
  EXPECT_THROW(world->pointer(0, 12345), BugError);
}

TEST(ShmWorld, BlocksAreZeroedAndDisjoint) {
  const auto one = make_world(2);
  const auto two = join(*one);
  const int64_t a = one->new_block(1000), b = two->new_block(1000);
  EXPECT_NE(a, b);
  char* here = one->map_block(a, 1000);
  EXPECT_EQ(one->map_block(a, 1000), here);
  EXPECT_EQ(here[999], 0);
  here[999] = 7;
  EXPECT_EQ(two->map_block(a, 1000)[999], 7);
  EXPECT_EQ(two->map_block(b, 1000)[0], 0);
}

TEST(ShmWorld, TheFirstReasonAndTheFirstErrorAreKept) {
  const auto one = make_world(2);
  const auto two = join(*one);
  EXPECT_FALSE(two->is_aborted());
  one->abort("first");
  two->abort("second");
  EXPECT_TRUE(two->is_aborted());
  EXPECT_EQ(two->abort_reason(), "first");
  two->note_failure(1, std::string(5000, 'x'));
  one->note_failure(1, "later");
  EXPECT_EQ(one->failure(1)->find_first_not_of('x'), std::string::npos);
  EXPECT_GT(one->failure(1)->size(), 1000u);
  EXPECT_EQ(one->failure(0), std::nullopt);
}

TEST(ShmWorld, WordsWakeOtherProcesses) {
  const auto world = make_world(1);
  auto* words = reinterpret_cast<SharedWord*>(world->map_block(world->first_block(), 4096));
  const pid_t child = ::fork();
  if (child == 0) {
    for (uint32_t i = 1; i <= 1000; ++i) {
      while (!world->wait_a_while(words[0], i)) continue;
      set_and_wake(words[1], i);
    }
    ::_exit(0);
  }
  for (uint32_t i = 1; i <= 1000; ++i) {
    set_and_wake(words[0], i);
    while (!world->wait_a_while(words[1], i)) continue;
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

TEST(SharedWord, CountsWrap) {
  SharedWord word{};
  word.value = 0xfffffffe;
  EXPECT_TRUE(word.has_reached(0xfffffffe));
  EXPECT_FALSE(word.has_reached(1));
  word.value = 2;
  EXPECT_TRUE(word.has_reached(1));
  EXPECT_TRUE(word.has_reached(0xffffffff));
}

TEST(ShmWorld, RejectsForeignDescriptors) {
  EXPECT_THROW(ShmWorld::attach(-1), UserError);
  EXPECT_THROW(ShmWorld::attach(::open("/dev/null", O_RDWR)), UserError);
  SharedSegment other = SharedSegment::create("other", int64_t{1} << 45);
  EXPECT_THROW(ShmWorld::attach(::dup(other.fd())), UserError);
  EXPECT_THROW(make_world(0), UserError);
  EXPECT_THROW(make_world(100000), UserError);
}

// A rank dies, the other parks: it keeps its arena, the dead one's is gone, groups start anew.
TEST(ShmWorld, AResetBeginsTheNextGeneration) {
  const auto supervisor = make_world(2);
  supervisor->set_recovers(true);
  const auto survivor = join(*supervisor);
  auto* kept = static_cast<char*>(survivor->take_arena(0, 1000));
  std::strcpy(kept, "kept");
  int64_t place = 0;
  {
    const auto dead = join(*supervisor);
    auto* lost = static_cast<char*>(dead->take_arena(1, 1000));
    std::strcpy(lost, "lost");
    place = dead->locate(1, lost, 5);
    EXPECT_STREQ(survivor->pointer(1, place), "lost");
    dead->note_failure(1, "killed");
  }
  survivor->add_no_deadline(1);
  std::strcpy(survivor->map_block(survivor->first_block(), 100), "group");
  EXPECT_FALSE(supervisor->has_stepped());
  survivor->note_step(41);
  EXPECT_TRUE(supervisor->has_stepped());
  supervisor->abort("rank 1 is dead");
  EXPECT_FALSE(supervisor->is_parked(0));
  std::thread parked([&] { EXPECT_TRUE(survivor->park(0)); });
  while (!supervisor->is_parked(0)) std::this_thread::yield();
  supervisor->reset({1}, 40);
  parked.join();

  EXPECT_EQ(survivor->generation(), 1u);
  EXPECT_EQ(survivor->start_step(), 40);
  EXPECT_EQ(supervisor->last_step(), 41);   // how far it was
  EXPECT_FALSE(supervisor->has_stepped());  // in this generation
  EXPECT_FALSE(survivor->is_aborted());
  EXPECT_FALSE(survivor->failure(1));
  EXPECT_LT(survivor->deadline_ms(), kPatientMs);
  EXPECT_STREQ(kept, "kept");
  EXPECT_STREQ(survivor->map_block(survivor->first_block(), 100), "");
  EXPECT_THROW(survivor->pointer(1, place), BugError);
  const auto fresh = join(*supervisor);
  EXPECT_EQ(fresh->generation(), 1u);
  auto* arena = static_cast<char*>(fresh->take_arena(1, 5 << 20));  // of another size
  EXPECT_STREQ(arena, "");
  std::strcpy(arena + (4 << 20), "new");
  EXPECT_STREQ(survivor->pointer(1, fresh->locate(1, arena + (4 << 20), 4)), "new");
  EXPECT_FALSE(supervisor->is_parked(0));
}

TEST(ShmWorld, ParkedRanksEndWhereNobodyRecoversThem) {
  const auto world = make_world(1);
  EXPECT_FALSE(world->park(0));
  world->set_recovers(true);
  std::thread parked([&] { EXPECT_FALSE(join(*world)->park(0)); });
  while (!world->is_parked(0)) std::this_thread::yield();
  world->set_recovers(false);
  parked.join();
}

TEST(ShmWorld, GenerationsAreCountedAsTheSupervisorOfTheRunDoes) {
  const auto world = make_world(1), rank = join(*world);
  EXPECT_EQ(rank->run_generation(), 0);
  world->reset({}, 3);
  EXPECT_EQ(world->run_generation(), 1);  // its own, where nobody has set another
  world->set_run_generation(7);
  EXPECT_EQ(rank->run_generation(), 7);
  EXPECT_EQ(world->generation(), 1u);
}

TEST(ShmWorld, MemoryThatCannotBeReadIsForgottenWithTheGeneration) {
  const auto world = make_world(1), rank = join(*world);
  EXPECT_EQ(world->memory_fault(), "");
  rank->note_memory_fault("the first reason");
  rank->note_memory_fault("another");
  EXPECT_EQ(world->memory_fault(), "the first reason");
  world->reset({}, -1);
  EXPECT_EQ(world->memory_fault(), "");
}

// A world's memory is freed with the last process that holds it, however it ends.
TEST(SharedSegment, HasNoNameAndIsClosedByExec) {
  const auto world = make_world(1);
  EXPECT_TRUE(::fcntl(world->fd(), F_GETFD) & FD_CLOEXEC);
}

}  // namespace
}  // namespace weft
