// tests/launch/hang_watch_test.cpp: which rank hangs, and which only waits or writes.
#include "launch/hang_watch.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <thread>

namespace weft {
namespace {

constexpr int64_t kHangMs = 1000;
const HangWatch::IsStopped kNobody = [](int) { return false; };

RankSign sign(Phase phase, int64_t step, uint64_t count, bool is_waiting = false) {
  RankSign made;
  made.has_stepped = true;
  made.phase = phase;
  made.step = step;
  made.count = count;
  made.is_waiting = is_waiting;
  return made;
}

HangWatch watch_of_two() {
  HangWatch watch(2);
  for (const int rank : {0, 1}) watch.look(rank, sign(Phase::kPasses, 2, 2), 0);
  return watch;
}

TEST(HangWatch, ARankWithoutProgressInAPhaseWithABound) {
  HangWatch watch = watch_of_two();
  for (int i = 1; i <= 6; ++i) {                           // 1.2 s
    watch.look(0, sign(Phase::kPasses, 2, 2, true), 200);  // waits for rank 1
    watch.look(1, sign(Phase::kPasses, 2, 2), 200);
    EXPECT_EQ(watch.find(kHangMs, kNobody), std::nullopt) << i;
  }
  watch.look(1, sign(Phase::kPasses, 2, 2), 200);  // a quarter after the deadline of collectives
  EXPECT_EQ(watch.find(kHangMs, kNobody), 1);
  EXPECT_EQ(watch.still_ms(1), 1400);
  watch.look(1, sign(Phase::kPasses, 2, 3), 200);  // it goes on
  EXPECT_EQ(watch.find(kHangMs, kNobody), std::nullopt);
}

TEST(HangWatch, ReadingAndWritingHaveNoBound) {
  for (const Phase phase : {Phase::kStarting, Phase::kData, Phase::kSaving, Phase::kFinishing,
                            Phase::kParking, Phase::kRecovering}) {
    HangWatch watch = watch_of_two();
    for (int i = 0; i < 1000; ++i) watch.look(1, sign(phase, 2, 3), 1000);
    EXPECT_EQ(watch.find(kHangMs, kNobody), std::nullopt) << phase_name(phase);
    // But a process that a signal has stopped does nothing, whatever it says.
    EXPECT_EQ(watch.find(kHangMs, [](int rank) { return rank == 1; }), 1);
  }
}

TEST(HangWatch, TheFirstStepMayTakeTenTimesAsLong) {
  HangWatch watch(1);
  RankSign first = sign(Phase::kPasses, 7, 1);
  first.has_stepped = false;
  for (int i = 0; i < 13; ++i) watch.look(0, first, 1000);
  EXPECT_EQ(watch.find(kHangMs, kNobody), std::nullopt);
  watch.look(0, first, 1000);
  EXPECT_EQ(watch.find(kHangMs, kNobody), 0);
}

// The watch itself did not run either: the machine was suspended, or its container frozen.
TEST(HangWatch, ATimeInWhichNobodyLookedCountsAsASecond) {
  HangWatch watch = watch_of_two();
  watch.look(1, sign(Phase::kPasses, 2, 2), 3'600'000);
  EXPECT_EQ(watch.find(kHangMs, kNobody), std::nullopt);
}

TEST(HangWatch, ARankThatHasEndedIsForgotten) {
  HangWatch watch = watch_of_two();
  for (int i = 0; i < 5; ++i) watch.look(1, sign(Phase::kPasses, 2, 2), 1000);
  EXPECT_EQ(watch.find(kHangMs, kNobody), 1);
  watch.look(1, std::nullopt, 200);
  EXPECT_EQ(watch.find(kHangMs, kNobody), std::nullopt);
}

TEST(HangWatch, AProcessThatASignalHasStopped) {
  const pid_t pid = ::fork();
  if (pid == 0) {
    ::pause();
    ::_exit(0);
  }
  EXPECT_FALSE(is_stopped_by_signal(pid));
  ::kill(pid, SIGSTOP);
  for (int i = 0; i < 1000 && !is_stopped_by_signal(pid); ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  EXPECT_TRUE(is_stopped_by_signal(pid));
  ::kill(pid, SIGKILL);
  ::waitpid(pid, nullptr, 0);
  EXPECT_FALSE(is_stopped_by_signal(pid));
}

}  // namespace
}  // namespace weft
