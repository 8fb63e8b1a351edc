// tests/launch/job_test.cpp: a local job: how it ends, its output, what it leaves behind.
#include <fmt/core.h>
#include <gtest/gtest.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <random>
#include <sstream>
#include <thread>

#include "base/stop.h"
#include "launch/cores.h"
#include "tests/expect_part.h"
#include "tests/program.h"

namespace weft {
namespace {

using testing::expect_part;
using testing::slurp;
using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// Runs the program as supervisor.
class Supervisor : public testing::Program {
 public:
  explicit Supervisor(const std::vector<std::string>& words,
                      const std::map<std::string, std::string>& env = {})
      : Program(words, {.env = env, .program = WEFT_RANK_PROGRAM}) {}

  // Of the rank, as reported by the supervisor.
  pid_t pid_of(int rank) const {
    const std::string text = out(), start = fmt::format("event started {} process ", rank);
    const size_t at = text.find(start);
    return at == std::string::npos ? -1 : std::stoi(text.substr(at + start.size()));
  }
};

// An orphan is reaped by init, eventually: a zombie counts as dead.
bool is_gone(pid_t pid) {
  if (::kill(pid, 0) != 0 && errno == ESRCH) return true;
  const std::string stat = slurp(fmt::format("/proc/{}/stat", pid));
  const size_t name_end = stat.rfind(')');
  return name_end == std::string::npos || stat.substr(name_end, 3) == ") Z";
}

// Every rank the supervisor ever started.
void expect_no_rank_left(const Supervisor& job, int num_ranks) {
  for (int rank = 0; rank < num_ranks; ++rank) {
    const pid_t pid = job.pid_of(rank);
    ASSERT_GT(pid, 0) << job.out();
    // The one exception is a killed supervisor: the system needs some time.
    for (int i = 0; i < 500 && !is_gone(pid); ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
    EXPECT_TRUE(is_gone(pid)) << "rank " << rank;
  }
}

// The inode of the job's shared memory, as mapped by a rank; "" where it has none (yet).
std::string memory_of(pid_t pid) {
  std::istringstream maps(slurp(fmt::format("/proc/{}/maps", pid)));
  for (std::string line; std::getline(maps, line);) {
    std::istringstream words(line);
    std::string range, access, offset, device, number, name;
    words >> range >> access >> offset >> device >> number >> name;
    if (name == "/memfd:weft") return number;
  }
  return "";
}

bool is_held_by_any(const std::string& memory) {
  for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
    const std::string name = entry.path().filename();
    if (name.find_first_not_of("0123456789") != std::string::npos) continue;
    if (memory_of(std::stoi(name)) == memory) return true;
  }
  return false;
}

TEST(Job, RanksKnowEachOtherAndTheirCores) {
  const auto cores = static_cast<int>(usable_cores().size());
  for (const int n : {1, 2, 5}) {
    Supervisor job({std::to_string(n), "report"});
    EXPECT_EQ(job.wait().code(), 0);
    const int share = std::max(1, cores / n);
    for (int rank = 0; rank < n; ++rank) {
      const bool is_pinned = n <= cores;
      const std::string prefix = rank == 0 ? "" : fmt::format("[rank {}] ", rank);
      std::string line =
          fmt::format("{}rank {} of {} sum {} threads {} cores ", prefix, rank, n, n, share);
      if (!is_pinned) line += std::to_string(cores);
      if (is_pinned && cores % n == 0) line += std::to_string(share);
      expect_part("\n" + job.out(), "\n" + line);
      if (rank == 0) continue;
      expect_part(job.err(), prefix + "whole line\n");
      expect_part(job.err(), fmt::format("{}no end of rank {}\n", prefix, rank));
    }
    expect_part(job.err(), "whole line\nno end of rank 0");
    expect_no_rank_left(job, n);
  }
}

struct Failure {
  const char* what;
  int rank, code;
  const char* cause;
};

TEST(Job, TheFirstCauseIsNamedFirstAndEndsAll) {
  const Failure failures[] = {
      {"user_error", 0, 2, "error: the run file is wrong\n"},
      {"user_error", 2, 2, "error: the run file is wrong\n"},
      {"bug", 1, 70, "error: rank 1 ended with exit code 70: a promise is broken\n"},
      {"code", 1, 3, "error: rank 1 ended with exit code 3"},
      {"crash", 2, 75, "error: rank 2 was killed by SIGABRT"},
  };
  for (const Failure& failure : failures) {
    Supervisor job({"3", failure.what, std::to_string(failure.rank)});
    EXPECT_EQ(job.wait().code(), failure.code) << failure.what;
    const std::string err = job.err();
    expect_part(err, failure.cause);
    // The other ranks end because of it, and report so later.
    const size_t at = err.find(failure.cause);
    for (int rank = 0; rank < 3; ++rank) {
      if (rank == failure.rank) continue;
      const std::string mine =
          rank == 0 ? "\nerror: all_reduce aborted: rank "
                    : fmt::format("[rank {}] error: all_reduce aborted: rank ", rank);
      EXPECT_NE(err.find(mine, at), std::string::npos) << failure.what << rank << "\n" << err;
    }
    expect_part(job.out(), fmt::format("event failed {} ", failure.rank));
    expect_no_rank_left(job, 3);
  }
}

// Ranks that ignore the abort are killed after the grace period.
TEST(Job, EndsWithinASecond) {
  Supervisor job({"3", "deaf", "1"});
  ASSERT_TRUE(job.says("event started 2"));
  const auto start = Clock::now();
  EXPECT_EQ(job.wait().code(), 1);
  EXPECT_LT(seconds_since(start), 10);  // ten times the promise
  expect_part(job.out(), "event failed 1 rank 1 ended with exit code 1");
  expect_part(job.out(), "event killed 0");
  expect_no_rank_left(job, 3);
}

// It was killed, and its parent does not see it end: as in a system call that nothing interrupts.
// (Who traces a process sees its end first, and this test does not look.)
TEST(Job, ARankThatCannotBeKilledEndsIt) {
  Supervisor job({"3", "train"}, {{"GRACE_MS", "100"}, {"UNKILLABLE_MS", "1000"}});
  ASSERT_TRUE(job.says("rank 1 trains") && job.says("rank 2 trains"));
  const pid_t held = job.pid_of(1);
  ASSERT_EQ(::ptrace(PTRACE_SEIZE, held, nullptr, nullptr), 0);
  ASSERT_EQ(::kill(job.pid_of(2), SIGKILL), 0);
  EXPECT_EQ(job.wait().code(), 75);
  expect_part(job.err(), "error: rank 2 was killed by SIGKILL");
  expect_part(job.err(), fmt::format("error: rank 1, process {}, was killed and has not ended "
                                     "within 1 s (state ",
                                     held));
  expect_part(job.out(), "event failed 2 ");
  EXPECT_EQ(job.out().find("event failed 1 "), std::string::npos);
  ::waitpid(held, nullptr, 0);
}

TEST(Job, ARankThatHangsIsNamedByItsPeers) {
  Supervisor job({"2", "hang", "1"});
  EXPECT_EQ(job.wait().code(), 75);
  expect_part(job.err(), "error: rank 0 ended with exit code 75: rank 0 waited ");
  expect_part(job.err(), "s in all_reduce of 1048576 bytes (fp32, sum) for rank 1");
  expect_no_rank_left(job, 2);
}

// Who waited for it has only noticed: the supervisor looks before it reports.
TEST(Job, ARankThatASignalHasStoppedIsTheCause) {
  Supervisor job({"3", "hang", "2"});
  ASSERT_TRUE(job.says("hangs"));
  ASSERT_EQ(::kill(job.pid_of(2), SIGSTOP), 0);
  EXPECT_EQ(job.wait().code(), 75);
  expect_part(job.out(), "event hung 2 starting, step 0; a signal has stopped it (SIGSTOP)\n");
  const std::string words =
      "rank 2 hung (starting, step 0; a signal has stopped it (SIGSTOP)) and was killed\n";
  expect_part(job.err(), "error: " + words);
  expect_part(job.out(), "event failed 2 " + words);
  expect_no_rank_left(job, 3);
}

// A save has no deadline, and nobody waits for it: the one that failed is the cause.
TEST(Job, ARankThatSavesForLongWhileAnotherOnesGpuFailsIsNotToBlame) {
  Supervisor job({"2", "save_long", "1"});
  EXPECT_EQ(job.wait().code(), 75);
  expect_part(job.err(), "error: rank 1 ended with exit code 75: a GPU failed\n");
  expect_part(job.out(), "event failed 1 ");
  EXPECT_EQ(job.out().find("event hung"), std::string::npos) << job.out();
  expect_no_rank_left(job, 2);
}

// What the first one does is not known; that the last one does nothing is.
TEST(Job, ARankThatASignalHasStoppedIsToBlameBeforeOneThatIsSilent) {
  Supervisor job({"3", "two_hang", "1"});
  ASSERT_TRUE(job.says("hangs"));
  ASSERT_EQ(::kill(job.pid_of(2), SIGSTOP), 0);
  EXPECT_EQ(job.wait().code(), 75);
  expect_part(job.out(), "event hung 0 ");
  expect_part(job.out(), "event failed 2 rank 2 hung (");
  expect_no_rank_left(job, 3);
}

TEST(Job, DifferentCallsAreNamed) {
  Supervisor job({"2", "other_call", "1"});
  EXPECT_EQ(job.wait().code(), 70);
  expect_part(job.err(), "ranks 0 and 1 made different calls at number 1");
  expect_part(job.err(), "rank 0 all_reduce of 1048576 bytes (fp32, sum), rank 1 barrier");
}

TEST(Job, KillsAtRandomTimesLeaveNothing) {
  std::mt19937 random(11);
  for (int i = 0; i < 5; ++i) {
    const int n = 2 + i % 3, victim = static_cast<int>(random() % static_cast<unsigned>(n));
    Supervisor job({std::to_string(n), "train"});
    ASSERT_TRUE(job.says(fmt::format("event started {} ", n - 1)));
    std::this_thread::sleep_for(std::chrono::milliseconds(random() % 150));
    const std::string memory = memory_of(job.pid());
    EXPECT_TRUE(is_held_by_any(memory)) << memory;
    const auto start = Clock::now();
    ASSERT_EQ(::kill(job.pid_of(victim), SIGKILL), 0);
    EXPECT_EQ(job.wait().code(), 75);
    EXPECT_LT(seconds_since(start), 10);
    expect_part(job.err(), fmt::format("error: rank {} was killed by SIGKILL", victim));
    EXPECT_EQ(job.err().find("error: rank "),
              job.err().find("error: rank " + std::to_string(victim)));
    expect_no_rank_left(job, n);
    EXPECT_FALSE(is_held_by_any(memory)) << memory;
  }
}

TEST(Job, RanksDieWithTheirSupervisor) {
  Supervisor job({"3", "train"});
  ASSERT_TRUE(job.says("rank 2 trains"));
  job.send(SIGKILL);
  EXPECT_EQ(job.wait().code(), -SIGKILL);
  expect_no_rank_left(job, 3);
}

TEST(Job, EveryStopSignalMakesAllSave) {
  for (const int signal : kStopSignals) {
    Supervisor job({"3", "train"});
    for (int rank = 0; rank < 3; ++rank) {
      ASSERT_TRUE(job.says(fmt::format("rank {} trains", rank)));
    }
    job.send(signal);
    EXPECT_EQ(job.wait().code(), 128 + signal);
    for (int rank = 0; rank < 3; ++rank) expect_part(job.out(), fmt::format("rank {} saved", rank));
    EXPECT_EQ(job.err(),
              fmt::format("{}: finishing the current step, then saving\n", signal_name(signal)));
    expect_no_rank_left(job, 3);
  }
}

// Whatever the ranks are doing: nobody waits for them.
TEST(Job, ASignalBeforeThereIsAnythingToSave) {
  for (const int signal : kStopSignals) {
    Supervisor job({"2", "early_stop"});
    ASSERT_TRUE(job.says("rank 0 has nothing"));
    ASSERT_TRUE(job.says("rank 1 has nothing"));
    job.send(signal);
    EXPECT_EQ(job.wait().code(), 128 + signal);
    EXPECT_EQ(job.err(), fmt::format("{}: stopped before the first step, with nothing to save\n",
                                     signal_name(signal)));
    expect_no_rank_left(job, 2);
  }
}

// Slurm's broadcasts, or a helpful user, may signal ranks too.
TEST(Job, RanksObeyOnlyTheSupervisor) {
  Supervisor job({"2", "train"});
  for (int rank = 0; rank < 2; ++rank) {
    ASSERT_TRUE(job.says(fmt::format("rank {} trains", rank)));
  }
  for (int rank = 0; rank < 2; ++rank) {
    for (const int signal : kStopSignals) ::kill(job.pid_of(rank), signal);
  }
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  EXPECT_FALSE(is_gone(job.pid_of(0)) || is_gone(job.pid_of(1)) || is_gone(job.pid()));
  EXPECT_EQ(job.err(), "");
  job.send(SIGUSR1);
  for (int rank = 0; rank < 2; ++rank) ::kill(job.pid_of(rank), SIGUSR1);
  EXPECT_EQ(job.wait().code(), 128 + SIGUSR1);
  for (int rank = 0; rank < 2; ++rank) expect_part(job.out(), fmt::format("rank {} saved", rank));
  EXPECT_EQ(job.err(), "SIGUSR1: finishing the current step, then saving\n");
}

// Slurm warns with SIGUSR1 and ends with SIGTERM; `timeout` sends its signal twice.
TEST(Job, OnlyASecondUrgentSignalCountsAsSecond) {
  Supervisor job({"2", "slow_save"});
  for (int rank = 0; rank < 2; ++rank) {
    ASSERT_TRUE(job.says(fmt::format("rank {} trains", rank)));
  }
  job.send(SIGUSR1);
  ASSERT_TRUE(job.says("event stopping"));
  for (const int signal : {SIGUSR1, SIGHUP, SIGUSR2, SIGHUP}) {
    job.send(signal);
    std::this_thread::sleep_for(std::chrono::milliseconds(60));
  }
  job.send(SIGTERM);
  job.send(SIGTERM);
  EXPECT_EQ(job.wait().code(), 128 + SIGUSR1);
  for (int rank = 0; rank < 2; ++rank) expect_part(job.out(), fmt::format("rank {} saved", rank));
}

TEST(Job, AnIgnoredHangUpStaysIgnored) {
  std::signal(SIGHUP, SIG_IGN);
  Supervisor job({"2", "train"});
  std::signal(SIGHUP, SIG_DFL);
  for (int rank = 0; rank < 2; ++rank) {
    ASSERT_TRUE(job.says(fmt::format("rank {} trains", rank)));
  }
  job.send(SIGHUP);
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  EXPECT_EQ(job.err(), "");
  job.send(SIGUSR2);
  EXPECT_EQ(job.wait().code(), 128 + SIGUSR2);
}

TEST(Job, ASecondSignalKills) {
  Supervisor job({"2", "ignore_stop", "1"});
  ASSERT_TRUE(job.says("hangs"));
  ASSERT_TRUE(job.says("rank 0 trains"));
  job.send(SIGTERM);
  ASSERT_TRUE(job.says("event stopping"));
  std::this_thread::sleep_for(std::chrono::milliseconds(2 * kSameSignalMs));
  job.send(SIGTERM);
  EXPECT_EQ(job.wait().code(), 1);  // not 143: nothing was saved
  expect_part(job.err(), "a second signal, SIGTERM");
  expect_part(job.out(), "event cut_off -1 a second signal ended the run at once");
  expect_no_rank_left(job, 2);
}

TEST(Job, ATooLateSignalIsNotAStop) {
  Supervisor job({"2", "finish"});
  ASSERT_TRUE(job.says("rank 0 finishes"));
  ASSERT_TRUE(job.says("rank 1 finishes"));
  job.send(SIGTERM);
  EXPECT_EQ(job.wait().code(), 0);
  expect_part(job.out(), "event stopping");
}

// Long before the deadline of half a minute; ranks that no longer need it are not disturbed.
TEST(Job, ARankThatExitsEarlyIsNamedAtOnce) {
  for (const int leaver : {0, 2}) {
    Supervisor job({"3", "leave", std::to_string(leaver)});
    ASSERT_TRUE(job.says("event started 2"));
    const auto start = Clock::now();
    EXPECT_EQ(job.wait().code(), 70);
    EXPECT_LT(seconds_since(start), 10);
    expect_part(job.err(), fmt::format(" for rank {}, which has ended", leaver));
    expect_no_rank_left(job, 3);
  }
}

TEST(Job, ARankMayEndBeforeItsPeersDo) {
  Supervisor job({"3", "last_one", "0"});
  EXPECT_EQ(job.wait().code(), 0);
  expect_part(job.out(), "rank 0 is alone and done");
}

TEST(Job, AProgramThatCannotBeExecuted) {
  Supervisor job({"2", "no_program"});
  EXPECT_EQ(job.wait().code(), 127);
  expect_part(job.err(), "cannot be executed: No such file or directory");
}

TEST(Cores, AreDividedInOrder) {
  using Shares = std::vector<std::vector<int>>;
  EXPECT_EQ(divide_cores({0, 1, 2, 3}, 2), (Shares{{0, 1}, {2, 3}}));
  EXPECT_EQ(divide_cores({4, 5, 6, 7, 8}, 2), (Shares{{4, 5}, {6, 7, 8}}));
  EXPECT_EQ(divide_cores({0, 1}, 3), Shares{});
  EXPECT_FALSE(usable_cores().empty());
}

}  // namespace
}  // namespace weft
