// tests/base/process_stat_test.cpp: the state and the start of real processes.
#include "base/process_stat.h"

#include <gtest/gtest.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>

namespace weft {
namespace {

TEST(ProcessStat, OfAProcessThatIsStoppedAndOneThatHasEnded) {
  const pid_t child = ::fork();
  if (child == 0) {
    ::prctl(PR_SET_NAME, ") Z 1 (");  // a name that looks like the fields behind it
    ::raise(SIGSTOP);
    ::_exit(0);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, WUNTRACED), child);
  const auto stopped = read_process_stat(child);
  ASSERT_TRUE(stopped);
  EXPECT_EQ(stopped->state, 'T');
  EXPECT_GE(stopped->start_ticks, read_process_stat(::getpid())->start_ticks);
  ::kill(child, SIGKILL);
  siginfo_t info;
  ASSERT_EQ(::waitid(P_PID, static_cast<id_t>(child), &info, WEXITED | WNOWAIT), 0);
  EXPECT_EQ(read_process_stat(child)->state, 'Z');
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_FALSE(read_process_stat(child));
}

}  // namespace
}  // namespace weft
