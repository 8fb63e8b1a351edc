// tests/train/signals_test.cpp: how a process ends by a signal says whether anything was lost.
#include "train/signals.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <csignal>

namespace weft {
namespace {

using ::testing::ExitedWithCode;
using ::testing::KilledBySignal;

TEST(SignalsDeathTest, BeforeTheFirstStepTheProcessEndsAtOnce) {
  for (const int signal : {SIGTERM, SIGINT}) {
    const auto meet_it = [signal](bool is_rank) {
      const StopSignals signals(is_rank);
      ::raise(signal);
      ::_exit(0);
    };
    EXPECT_EXIT(meet_it(false), ExitedWithCode(128 + signal), "before the first step");
    EXPECT_EXIT(meet_it(true), KilledBySignal(signal), "");
  }
}

TEST(SignalsDeathTest, ASecondOneDoesNotClaimThatAnythingWasSaved) {
  for (const bool is_rank : {false, true}) {
    const auto meet_two = [is_rank] {
      const StopSignals signals(is_rank);
      signals.hold();
      ::raise(SIGTERM);
      ::raise(SIGINT);
      ::_exit(0);
    };
    EXPECT_EXIT(meet_two(), ExitedWithCode(1), "SIGINT, the second signal");
  }
}

TEST(Signals, TheFirstIsNotedOnceThereIsSomethingToSave) {
  const StopSignals signals(false);
  signals.hold();
  EXPECT_EQ(signals.received(), 0);
  ::raise(SIGINT);
  EXPECT_EQ(signals.received(), SIGINT);
}

}  // namespace
}  // namespace weft
