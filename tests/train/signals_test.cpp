// tests/train/signals_test.cpp: how a process ends on a signal shows whether anything was lost.
#include "train/signals.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <fstream>
#include <thread>

#include "base/file.h"
#include "net/shm_world.h"
#include "tests/io/temporary_folder.h"
#include "train/solo_status.h"

namespace weft {
namespace {

using ::testing::ExitedWithCode;

// As in a terminal's child: whoever started the tests may ignore SIGHUP (nohup).
[[maybe_unused]] const auto kBefore = std::signal(SIGHUP, SIG_DFL);

void sleep_ms(int64_t ms) { std::this_thread::sleep_for(std::chrono::milliseconds(ms)); }

TEST(SignalsDeathTest, BeforeTheFirstStepTheProcessEndsAtOnce) {
  for (const int signal : kStopSignals) {
    const auto meet_it = [signal] {
      const StopSignals signals(nullptr);
      ::raise(signal);
      ::_exit(0);
    };
    EXPECT_EXIT(meet_it(), ExitedWithCode(128 + signal), "before the first step");
  }
}

TEST(SignalsDeathTest, ASecondOneDoesNotClaimThatAnythingWasSaved) {
  const auto meet_two = [] {
    const StopSignals signals(nullptr);
    signals.hold();
    ::raise(SIGTERM);
    sleep_ms(2 * kSameSignalMs);
    ::raise(SIGINT);
    ::_exit(0);
  };
  EXPECT_EXIT(meet_two(), ExitedWithCode(1), "SIGINT, the second signal");
}

// A signal handler cannot write the records: the thread writes them and ends the process.
TEST(SignalsDeathTest, ASecondOneIsAnEventOfARunOfOneRank) {
  const testing::TemporaryFolder run;
  const auto meet_two = [&] {
    SoloStatus status(run.path(), std::nullopt);
    const StopSignals signals(nullptr);
    std::ofstream(run / "events.jsonl") << "{\"event\":\"started\"}\n";
    status.heartbeat()->note(Phase::kData, 3);
    signals.hold();
    ::raise(SIGINT);
    sleep_ms(2 * kSameSignalMs);
    ::raise(SIGINT);
    ::raise(SIGINT);  // its echo does not end the process before that
    sleep_ms(20'000);
    ::_exit(0);
  };
  EXPECT_EXIT(meet_two(), ExitedWithCode(1), "SIGINT, the second signal");
  for (const char* file : {"events.jsonl", kStatusFile}) {
    EXPECT_NE(read_file(run / file).find("a second signal ended the run at once"),
              std::string::npos)
        << file;
  }
  EXPECT_NE(read_file(run / "events.jsonl").find("\"failed\""), std::string::npos);
}

TEST(Signals, TheFirstIsRecordedOnceThereIsSomethingToSave) {
  for (const int signal : kStopSignals) {
    const StopSignals signals(nullptr);
    signals.hold();
    EXPECT_EQ(signals.received(), 0);
    ::testing::internal::CaptureStderr();
    ::raise(signal);
    EXPECT_EQ(::testing::internal::GetCapturedStderr(),
              std::string(signal_name(signal)) + ": finishing the current step, then saving\n");
    EXPECT_EQ(signals.received(), signal);
    EXPECT_EQ(stop_signal(), signal);
    EXPECT_THROW(throw_if_stopped(), StopError);
  }
  EXPECT_EQ(stop_signal(), 0);
}

// Nested, as in `weft train`: the inner one is the run's.
TEST(SignalsDeathTest, AfterTheRunItIsReportedAndTheExitCodeStays) {
  const auto meet_late = [] {
    const StopSignals outer(nullptr);
    {
      const StopSignals inner(nullptr);
      inner.hold();
    }
    ::raise(SIGTERM);
    ::_exit(7);
  };
  EXPECT_EXIT(meet_late(), ExitedWithCode(7), "^SIGTERM: the run has ended already\n$");
  const auto before_it = [] {
    const StopSignals outer(nullptr);
    { const StopSignals inner(nullptr); }  // rejected before it held
    ::raise(SIGTERM);
    ::_exit(7);
  };
  EXPECT_EXIT(before_it(), ExitedWithCode(143), "before the first step");
}

TEST(Signals, TheHandlerLeavesErrnoAlone) {
  const StopSignals signals(nullptr);
  signals.hold();
  const int error = ::dup(2);
  ::close(2);  // its line cannot be written
  errno = ENOTTY;
  ::raise(SIGUSR1);
  const int after = errno;
  ::dup2(error, 2);
  ::close(error);
  EXPECT_EQ(after, ENOTTY);
}

// The process would be gone.
TEST(Signals, WarningsAndEchoesAreNotASecondSignal) {
  const StopSignals signals(nullptr);
  signals.hold();
  ::raise(SIGUSR1);
  for (const int signal : {SIGUSR1, SIGUSR2, SIGHUP, SIGHUP}) ::raise(signal);
  ::raise(SIGTERM);  // the first of its kind
  ::raise(SIGTERM);  // at the same time: `timeout` sends two
  EXPECT_EQ(signals.received(), SIGUSR1);
}

TEST(Signals, AnIgnoredHangUpStaysIgnored) {
  std::signal(SIGHUP, SIG_IGN);
  {
    const StopSignals signals(nullptr);
    ::raise(SIGHUP);
    signals.hold();
    ::raise(SIGHUP);
    EXPECT_EQ(signals.received(), 0);
  }
  std::signal(SIGHUP, SIG_DFL);
}

TEST(Signals, ARankLearnsOfItFromItsWorld) {
  const auto world = ShmWorld::create({});
  const StopSignals signals(world.get());
  signals.hold();
  EXPECT_EQ(signals.received(), 0);
  EXPECT_TRUE(world->request_stop(SIGUSR2));
  EXPECT_EQ(signals.received(), SIGUSR2);
  EXPECT_EQ(stop_signal(), SIGUSR2);
}

TEST(Signals, AStopBeforeAnythingCanBeSavedIsKnownOnBothSides) {
  const auto world = ShmWorld::create({});
  EXPECT_FALSE(world->request_stop(SIGTERM));
  EXPECT_FALSE(world->begin_saving());
}

}  // namespace
}  // namespace weft
