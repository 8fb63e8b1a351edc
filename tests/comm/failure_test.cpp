// tests/comm/failure_test.cpp: what ends a call that cannot complete: mismatch, deadline, abort,
// death.
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <atomic>
#include <chrono>
#include <optional>
#include <thread>

#include "base/error.h"
#include "tests/comm/ranks.h"
#include "tests/expect_part.h"

namespace weft::testing {
namespace {

using Clock = std::chrono::steady_clock;

class Failure : public ::testing::TestWithParam<BackEnd> {
 protected:
  RanksOptions options(int num_ranks) const { return small_chunks(GetParam(), num_ranks); }
};

void sleep_ms(int64_t ms) { std::this_thread::sleep_for(std::chrono::milliseconds(ms)); }

// Makes no call, but does not exit either.
void wait_for_abort(const Comm& comm) {
  while (!comm.is_aborted()) sleep_ms(1);
}

// Every rank reports the same: both ranks and both calls.
TEST_P(Failure, DifferentCallsNameBothRanksAndBothCalls) {
  struct Other {
    const char* name;
    std::function<void(Comm&, char*)> call;
    const char* description;
  };
  const Other others[] = {
      {"operation", [](Comm& c, char*) { c.barrier(); }, "barrier"},
      {"size", [](Comm& c, char* d) { c.all_reduce(d, 101, Dtype::kF32); },
       "all_reduce of 404 bytes (fp32, sum)"},
      {"dtype", [](Comm& c, char* d) { c.all_reduce(d, 200, Dtype::kBf16); },
       "all_reduce of 400 bytes (bf16, sum)"},
      {"reduction", [](Comm& c, char* d) { c.all_reduce(d, 100, Dtype::kF32, Reduce::kMax); },
       "all_reduce of 400 bytes (fp32, max)"},
      {"large", [](Comm& c, char* d) { c.all_gather(d, d + 65536, 20000); },
       "all_gather of 20000 bytes"},
  };
  for (const Other& other : others) {
    const auto ends = run_ranks(options(3), [&](Rank& me) {
      char* data = me.take(1 << 18, true);
      me.comm->barrier();
      if (me.comm->rank() == 2) return other.call(*me.comm, data);
      me.comm->all_reduce(data, 100, Dtype::kF32);
    });
    for (const std::string& end : ends) {
      SCOPED_TRACE(other.name);
      const std::string wanted = fmt::format(
          "{0}s 0 and 2 made different calls at number 2 of their group: {0} 0 all_reduce of 400 "
          "bytes (fp32, sum), {0} 2 {1}",
          is_on_device(GetParam()) ? "member" : "rank", other.description);
      // Over TCP the abort of a rank that has detected it may arrive before the headers.
      if (is_gloo(GetParam())) {
        EXPECT_TRUE(end.ends_with(wanted)) << end;
      } else {
        EXPECT_EQ(end, wanted);
      }
    }
  }
}

TEST_P(Failure, DifferentRootsAreDetected) {
  const auto ends = run_ranks(options(2), [](Rank& me) {
    char byte = 0;
    try {
      me.comm->broadcast(&byte, 1, me.comm->rank());
    } catch (const Error& e) {
      check(false, fmt::format("exit code {}: {}", e.exit_code(), e.what()));
    }
  });
  bool is_bug =
      false;  // on one rank, which the supervisor reports; over TCP others may only see the abort
  for (const std::string& end : ends) {
    expect_part(end, "rank 0 broadcast of 1 bytes from 0, rank 1 broadcast of 1 bytes from 1");
    is_bug |= end.starts_with("exit code 70");
    EXPECT_TRUE(end.starts_with("exit code 70") || is_gloo(GetParam())) << end;
  }
  EXPECT_TRUE(is_bug);
}

TEST_P(Failure, AMessageOfAnotherSizeIsDetected) {
  const auto ends = run_ranks(options(2), [](Rank& me) {
    char data[16] = {};
    if (me.comm->rank() == 0) me.comm->send(data, 8, 1);
    if (me.comm->rank() == 1) me.comm->recv(data, 16, 0);
    me.comm->barrier();
  });
  for (const std::string& end : ends) {
    expect_part(end, "rank 0 send of 8 bytes, rank 1 recv of 16 bytes");
  }
}

// Long before the deadline: a peer that waits in a collective will not send.
TEST_P(Failure, ARecvAgainstACollectiveIsDetected) {
  const auto ends = run_ranks(options(2), [](Rank& me) {
    char data[16] = {};
    if (me.comm->rank() == 0) me.comm->barrier();
    if (me.comm->rank() == 1) me.comm->recv(data, 16, 0);
  });
  for (const std::string& end : ends) {
    expect_part(end, "ranks 1 and 0 made different calls: rank 1 recv of 16 bytes, rank 0 ");
    if (!is_on_device(GetParam())) expect_part(end, "rank 0 barrier");  // where calls are gathered
  }
}

TEST_P(Failure, TheDeadlineNamesMissingRanks) {
  const auto start = Clock::now();
  const auto ends = run_ranks(options(4), [](Rank& me) {
    me.comm->barrier();
    me.comm->set_deadline_ms(200);
    if (me.comm->rank() % 2 == 1) return wait_for_abort(*me.comm);
    int64_t one = 1;
    me.comm->all_reduce(&one, 1, Dtype::kI64);
  });
  EXPECT_LT(Clock::now() - start, std::chrono::seconds(5));
  for (const size_t rank : {size_t{0}, size_t{2}}) {
    expect_part(ends[rank], "all_reduce of 8 bytes (i64, sum) for rank 1 (last seen in ");
    if (is_on_device(GetParam())) continue;
    const int number = GetParam() == BackEnd::kNodesThreads ? 2 : 1;  // it was split before
    expect_part(ends[rank], fmt::format("for rank 1 (last seen in barrier number {0}), 3 (last "
                                        "seen in barrier number {0})",
                                        number));
  }
  EXPECT_EQ(ends[1], "");
  EXPECT_EQ(ends[3], "");
}

TEST_P(Failure, TheDeadlineCanBeChangedAndHoldsForMessages) {
  const auto ends = run_ranks(options(2), [](Rank& me) {
    if (me.comm->rank() == 0) return wait_for_abort(*me.comm);
    me.comm->set_deadline_ms(150);
    char byte = 0;
    me.comm->recv(&byte, 1, 0);
  });
  EXPECT_EQ(ends[0], "");
  expect_part(ends[1], "rank 1 waited ");
  expect_part(ends[1], " s in recv of 1 bytes for rank 0 (last seen in ");
  if (!is_on_device(GetParam())) expect_part(ends[1], "(last seen in no call)");
}

// Long work on one rank does not end the others' wait; without ScopedNoDeadline it does.
TEST_P(Failure, NoDeadlineOutlastsTheDeadline) {
  for (const bool patient : {true, false}) {
    const auto ends = run_ranks(options(3), [patient](Rank& me) {
      me.comm->barrier();
      me.comm->set_deadline_ms(150);
      for (int round = 0; round < 3; ++round) {
        std::optional<ScopedNoDeadline> no_deadline;
        if (patient) no_deadline.emplace(*me.comm);
        if (me.comm->rank() == round % 2) sleep_ms(400);
        me.comm->barrier();
      }
    });
    int failed = 0;
    for (const std::string& end : ends) failed += !end.empty();
    if (patient) {
      EXPECT_EQ(failed, 0) << ends[0] << ends[1] << ends[2];
    } else {
      EXPECT_GT(failed, 0);
    }
  }
}

TEST_P(Failure, AfterAFailureEveryCallFailsWithTheFirstReason) {
  const auto ends = run_ranks(options(2), [](Rank& me) {
    const auto split = me.comm->split(0, 0);
    if (me.comm->rank() == 0) sleep_ms(100);  // the others have left split
    if (me.comm->rank() == 0) me.comm->abort("the first reason");
    if (me.comm->rank() == 0) me.comm->abort("the second reason");
    wait_for_abort(*me.comm);
    int thrown = 0;
    for (Comm* comm : {me.comm.get(), split.get()}) {
      char byte[2] = {};
      const std::function<void()> calls[] = {
          [&] { comm->barrier(); },
          [&] { comm->all_gather(byte, byte, 1); },
          [&] { comm->send(byte, 1, 1 - comm->rank()); },
          [&] { comm->split(0, 0); },
      };
      for (const auto& call : calls) {
        try {
          call();
        } catch (const PeerError& e) {
          thrown += std::string(e.what()).find("aborted: the first reason") != std::string::npos;
          check(e.exit_code() == 75, "exit code");
        }
      }
    }
    check(thrown == 8, fmt::format("{} of 8 calls said so", thrown));
  });
  for (const std::string& end : ends) EXPECT_EQ(end, "");
}

// From outside, while all wait: in a collective, in recv and in a send that nobody receives.
TEST_P(Failure, AnAbortFromOutsideEndsEveryWait) {
  for (const bool oversubscribed : {false, true}) {
    RanksOptions o = options(oversubscribed ? 6 : 4);
    Clock::time_point aborted;
    o.meanwhile = [&](const RanksOptions::Abort& abort, const std::vector<pid_t>&) {
      const bool is_slow = is_gloo(o.back_end) || is_on_device(o.back_end);
      sleep_ms(is_slow ? 600 : 100);  // all are connected, and wait
      aborted = Clock::now();
      abort("a word from outside");
    };
    const auto ends = run_ranks(o, [](Rank& me) {
      char* data = me.take(1 << 20, true);
      switch (me.comm->rank()) {
        case 0:
          return wait_for_abort(*me.comm);  // the others cannot continue without it
        case 1:
          return me.comm->recv(data, 100, 0);
        case 2:
          return me.comm->send(data, 1 << 20, 0);
        default:
          return me.comm->barrier();
      }
    });
    EXPECT_LT(Clock::now() - aborted, std::chrono::seconds(1));  // ten times the promise
    EXPECT_EQ(ends[0], "");
    for (size_t rank = 1; rank < ends.size(); ++rank) {
      expect_part(ends[rank], "aborted: a word from outside");
    }
  }
}

INSTANTIATE_TEST_SUITE_P(BackEnds, Failure, ::testing::ValuesIn(back_ends_of_many()),
                         [](const auto& p) { return name_of(p.param); });

// The victim was killed, and the others report it.
void expect_killed(const std::vector<std::string>& ends, size_t victim, const std::string& words) {
  for (size_t rank = 0; rank < ends.size(); ++rank) {
    if (rank == victim) {
      EXPECT_EQ(ends[rank], "signal 9");
    } else {
      expect_part(ends[rank], words);
    }
  }
}

// kill -9 at any time, then the reaper's abort: the others end at once.
TEST(Death, OfAPeerEndsTheOthers) {
  for (int round = 0; round < 6; ++round) {
    RanksOptions o = small_chunks(BackEnd::kProcesses, 3);
    const auto victim = static_cast<size_t>(round % 3);
    Clock::time_point killed;
    o.meanwhile = [&](const RanksOptions::Abort& abort, const std::vector<pid_t>& pids) {
      sleep_ms(20 + round * 7);
      killed = Clock::now();
      ::kill(pids[victim], SIGKILL);
      abort(fmt::format("rank {} was killed", victim));
    };
    const auto ends = run_ranks(o, [](Rank& me) {
      char* data = me.take(1 << 18, true);
      char* apart = me.take(1 << 18, false);
      for (;;) {
        me.comm->all_reduce(data, 1 << 16, Dtype::kF32);
        me.comm->all_reduce(apart, 1 << 14, Dtype::kF32);
        me.comm->all_reduce(apart, 1, Dtype::kF32);
      }
    });
    EXPECT_LT(Clock::now() - killed, std::chrono::seconds(1));
    expect_killed(ends, victim, fmt::format("aborted: rank {} was killed", victim));
  }
}

// Over TCP nobody needs to report it: the store sees the connection end.
TEST(Death, OfAPeerIsDetectedByTheStore) {
  if (!has_gloo()) {
    EXPECT_THROW(make_gloo_comm({}), UserError);
    return;
  }
  // Memory that the processes share: how many of them are running.
  void* shared = ::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(shared, MAP_FAILED);
  auto* at_work = new (shared) std::atomic<int>(0);
  for (int round = 0; round < 6; ++round) {
    *at_work = 0;
    RanksOptions o = small_chunks(BackEnd::kGlooProcesses, 3);
    o.world.chunk_bytes = 64 << 10;
    const auto victim = static_cast<size_t>(round % 3);
    Clock::time_point killed;
    o.meanwhile = [&](const RanksOptions::Abort&, const std::vector<pid_t>& pids) {
      for (int i = 0; i < 20'000 && *at_work < 3; ++i) sleep_ms(1);
      sleep_ms(round * 7);
      killed = Clock::now();
      ::kill(pids[victim], SIGKILL);
    };
    const auto ends = run_ranks(o, [at_work](Rank& me) {
      char* apart = me.take(1 << 18, false);
      *at_work += 1;
      for (;;) {
        me.comm->all_reduce(apart, 1 << 16, Dtype::kF32);
        me.comm->all_reduce(apart, 1, Dtype::kF32);
      }
    });
    EXPECT_LT(Clock::now() - killed, std::chrono::seconds(1));
    expect_killed(ends, victim, fmt::format("rank {} ended without reporting an error", victim));
  }
  ::munmap(shared, 4096);
}

// Nobody waits for the deadline where one dies before all are connected.
TEST(Death, WhileConnecting) {
  if (!has_gloo()) {
    EXPECT_THROW(make_gloo_comm({}), UserError);
    return;
  }
  RanksOptions o;
  o.back_end = BackEnd::kGlooProcesses;
  o.num_ranks = 3;
  const auto start = Clock::now();
  const auto ends = run_ranks(o, [](Rank& me) {
    if (me.comm->rank() == 2) ::raise(SIGKILL);
    me.comm->split(0, 0);
  });
  EXPECT_LT(Clock::now() - start, std::chrono::seconds(10));
  expect_killed(ends, 2, "rank 2 ended without reporting an error");
}

// Waiting is cheap: the CPU time of waiting ranks is a small part of the wait.
TEST(Waiting, BurnsNoCoreWithMoreRanksThanCores) {
  RanksOptions o;
  o.back_end = BackEnd::kProcesses;
  o.num_ranks = static_cast<int>(std::thread::hardware_concurrency()) + 2;
  expect_ranks(o, [](Rank& me) {
    me.comm->barrier();
    if (me.comm->rank() == 0) sleep_ms(500);
    const std::clock_t before = std::clock();
    me.comm->barrier();
    const double used_s = static_cast<double>(std::clock() - before) / CLOCKS_PER_SEC;
    check(used_s < 0.05, fmt::format("{} s of processor time in half a second", used_s));
  });
}

}  // namespace
}  // namespace weft::testing
