// tests/launch/signal_pipe_test.cpp: signals come with the time at which they arrived.
#include "launch/signal_pipe.h"

#include <gtest/gtest.h>

#include <chrono>
#include <thread>

namespace weft {
namespace {

void sleep_ms(int64_t ms) { std::this_thread::sleep_for(std::chrono::milliseconds(ms)); }

// A loop that is late must neither take an echo for a second signal nor a second one for an echo.
TEST(SignalPipe, TheTimeIsThatOfTheArrival) {
  SignalPipe signals;
  ::raise(SIGTERM);
  ::raise(SIGTERM);
  sleep_ms(3 * kSameSignalMs);
  ::raise(SIGINT);
  sleep_ms(3 * kSameSignalMs);
  const std::vector<ArrivedSignal> got = signals.take();
  ASSERT_EQ(got.size(), 3u);
  EXPECT_EQ(got[0].number, SIGTERM);
  EXPECT_EQ(got[2].number, SIGINT);
  EXPECT_LE(got[1].at_ms - got[0].at_ms, kSameSignalMs);
  EXPECT_GT(got[2].at_ms - got[0].at_ms, kSameSignalMs);
  EXPECT_TRUE(signals.take().empty());
}

}  // namespace
}  // namespace weft
