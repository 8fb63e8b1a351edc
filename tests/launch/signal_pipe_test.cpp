// tests/launch/signal_pipe_test.cpp: signals carry the time of their arrival.
#include "launch/signal_pipe.h"

#include <gtest/gtest.h>

#include <chrono>
#include <thread>

namespace weft {
namespace {

void sleep_ms(int64_t ms) { std::this_thread::sleep_for(std::chrono::milliseconds(ms)); }

// A late loop must neither mistake an echo for a second signal nor a second signal for an echo.
TEST(SignalPipe, RecordsTheTimeOfArrival) {
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
