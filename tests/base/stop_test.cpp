// tests/base/stop_test.cpp: a signal handler must not disturb the code that it interrupts.
#include "base/stop.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <csignal>

namespace weft {
namespace {

// JSON integers are parsed by strtoll, which reports through errno: a handler that changed it
// turned an integer into a double, and the save after a signal failed.
TEST(SignalLine, LeavesErrnoAlone) {
  ::testing::internal::CaptureStderr();  // a file: isatty fails with ENOTTY
  errno = 0;
  write_signal_line(SIGUSR1, ": noted");
  const int after = errno;
  errno = ERANGE;
  write_signal_line(SIGTERM, ": noted");
  const int kept = errno;
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "SIGUSR1: noted\nSIGTERM: noted\n");
  EXPECT_EQ(after, 0);
  EXPECT_EQ(kept, ERANGE);
}

}  // namespace
}  // namespace weft
