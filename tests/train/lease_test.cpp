// tests/train/lease_test.cpp: one holder at a time; takeovers of the dead, the silent and the lost.
#include "train/lease.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <optional>

#include "base/error.h"
#include "base/json.h"
#include "tests/io/temporary_folder.h"

namespace weft {
namespace {

using namespace std::chrono_literals;
using testing::error_of;

struct Text {
  std::mutex mutex;
  std::optional<std::string> value;

  LeasePlace place() {
    return {"the lock",
            [this] {
              const std::lock_guard lock(mutex);
              return value;
            },
            [this](const std::string& text) {
              const std::lock_guard lock(mutex);
              value = text;
            },
            [this] {
              const std::lock_guard lock(mutex);
              value.reset();
            }};
  }
  Json json() {
    const std::lock_guard lock(mutex);
    return value ? parse_json(*value, "the lock") : Json();
  }
  // As another machine's process would have left it.
  void hold(const std::string& machine, int64_t pid, double lease_s) {
    const std::lock_guard lock(mutex);
    value = fmt::format(R"({{"host":"far","pid":{},"machine":"{}","token":"t","beat":0,)"
                        R"("lease_s":{},"held":true}})",
                        pid, machine, lease_s);
  }
};

pid_t ended_process() {
  const pid_t child = ::fork();
  if (child == 0) ::_exit(0);
  EXPECT_EQ(::waitpid(child, nullptr, 0), child);
  return child;
}

constexpr LeaseTimes kQuick{20ms, 2000ms, 5ms};

TEST(Lease, ASecondHolderIsRefusedWithHostAndPid) {
  Text text;
  const Lease first(text.place(), kQuick);
  const std::string error = error_of<UserError>([&] { const Lease second(text.place(), kQuick); });
  EXPECT_NE(error.find(host_name()), std::string::npos) << error;
  EXPECT_NE(error.find(std::to_string(::getpid())), std::string::npos) << error;
}

TEST(Lease, OneThatWasUsedLeavesItsTokenAndOneThatWasNotTheOldOne) {
  Text text;
  { const Lease unused(text.place(), kQuick); }
  EXPECT_TRUE(text.json().is_null());
  std::string token;
  {
    Lease used(text.place(), kQuick);
    EXPECT_TRUE(text.json().at("held").as_bool());
    used.mark_used();
    token = used.token();
  }
  EXPECT_FALSE(text.json().at("held").as_bool());
  {
    const Lease next(text.place(), kQuick);
    EXPECT_EQ(next.token_before(), token);
    EXPECT_EQ(text.json().at("token").as_string(), next.token());
  }
  EXPECT_EQ(text.json().at("token").as_string(), token);
}

// Started and ended without changing anything: the mirror of the one before is still current.
TEST(Lease, ATokenCountsFromTheFirstChangeOn) {
  Text text;
  std::string used;
  {
    Lease first(text.place(), kQuick);
    first.mark_used();
    used = first.token();
  }
  std::string killed;
  {
    const Lease second(text.place(), kQuick);
    const std::lock_guard lock(text.mutex);
    killed = *text.value;
  }
  text.value = killed;  // as if it had been killed while it held the lease
  EXPECT_TRUE(text.json().at("held").as_bool());
  EXPECT_EQ(text.json().at("current").as_string(), used);
}

// A store that does not answer holds up the heartbeat, not who asks at every step.
TEST(Lease, WhetherItIsLostIsKnownWithoutWaiting) {
  Text text;
  std::atomic<bool> is_stuck = false, was_stuck = false;
  LeasePlace place = text.place();
  place.read = [&, read = place.read] {
    while (is_stuck) {
      was_stuck = true;
      std::this_thread::sleep_for(5ms);
    }
    return read();
  };
  const Lease lease(place, kQuick);
  is_stuck = true;
  while (!was_stuck) std::this_thread::sleep_for(1ms);
  EXPECT_FALSE(lease.is_lost());  // returns
  is_stuck = false;
}

TEST(Lease, OneOfAnotherMachineIsTakenOverWhenItIsSilentForItsTime) {
  Text text;
  text.hold("another machine", 7, 0.3);
  const auto begun = std::chrono::steady_clock::now();
  const Lease lease(text.place(), kQuick);
  EXPECT_GE(std::chrono::steady_clock::now() - begun, 300ms);
  EXPECT_EQ(lease.token_before(), "t");
}

// A store that keeps something else than what is put there.
TEST(Lease, ALockThatReadsBackGarbledIsAnError) {
  Text text;
  LeasePlace place = text.place();
  place.write = [write = place.write](const std::string& bytes) { write("A7\r\n" + bytes); };
  const std::string error = error_of<RunError>([&] { const Lease lease(place, kQuick); });
  EXPECT_NE(error.find("does not keep what is written"), std::string::npos) << error;
}

TEST(Lease, AnAbsurdTimeIsNotBelieved) {
  for (const double lease_s : {-1.0, 0.0, 1e300}) {
    Text text;
    text.hold("another machine", 7, lease_s);
    std::atomic<bool> is_refused = false;
    std::thread other([&] {  // renews it, so that the one who waits is refused
      while (!is_refused) {
        std::this_thread::sleep_for(20ms);
        const std::lock_guard lock(text.mutex);
        *text.value += " ";
      }
    });
    error_of<UserError>([&] { const Lease lease(text.place(), kQuick); });
    is_refused = true;
    other.join();
  }
}

TEST(Lease, OneOfADeadProcessOfThisMachineIsTakenOverAtOnce) {
  Text text;
  text.hold(machine_identity(), ended_process(), 3600);
  const Lease lease(text.place(), kQuick);
  EXPECT_EQ(text.json().at("pid").as_int(), ::getpid());
}

// A rank that died while its supervisor lives is about to be replaced: the lease is not free, but
// expires where that takes too long.
TEST(Lease, OneOfADeadRankWhoseSupervisorLivesIsWatched) {
  Text text;
  text.hold(machine_identity(), ended_process(), 0.3);
  const std::string of_run = fmt::format(R"({{"run_pid":{},)", ::getppid());
  text.value = of_run + text.value->substr(1);
  const auto begun = std::chrono::steady_clock::now();
  const Lease lease(text.place(), kQuick);
  EXPECT_GE(std::chrono::steady_clock::now() - begun, 300ms);
}

// The same rank's replacement has that supervisor too. Without the variables it is this process.
TEST(Lease, OneOfADeadRankIsTakenAtOnceByItsReplacement) {
  Text text;
  text.hold(machine_identity(), ended_process(), 3600);
  text.value = fmt::format(R"({{"run_pid":{},)", ::getpid()) + text.value->substr(1);
  const Lease lease(text.place(), kQuick);
  EXPECT_EQ(text.json().at("pid").as_int(), ::getpid());
}

TEST(Lease, AReplacementGoesOnWithTheTokenOfTheDead) {
  Text text;
  text.hold(machine_identity(), 7, 25);
  {
    const Lease lease(text.place(), "t", kQuick);
    for (int i = 0; i < 500 && text.json().at("pid").as_int() == 7; ++i)
      std::this_thread::sleep_for(10ms);
    EXPECT_EQ(text.json().at("pid").as_int(), ::getpid());  // renewed
    EXPECT_EQ(text.json().at("token").as_string(), "t");
    EXPECT_TRUE(text.json().at("held").as_bool());
    error_of<UserError>([&] { const Lease second(text.place(), kQuick); });
  }
  EXPECT_FALSE(text.json().at("held").as_bool());
  EXPECT_EQ(text.json().at("token").as_string(), "t");
}

TEST(Lease, AReplacementThatCameTooLateHasLostIt) {
  Text text;
  text.hold("another machine", 7, 25);
  Lease lease(text.place(), "mine", kQuick);
  const std::string error = error_of<RunError>([&] { lease.check(); });
  EXPECT_NE(error.find("process 7 on far"), std::string::npos) << error;
  EXPECT_EQ(text.json().at("token").as_string(), "t");
}

TEST(Lease, AReplacementWaitsForNoPlaceThatIsAway) {
  Text text;
  text.hold(machine_identity(), 7, 25);
  LeasePlace place = text.place();
  std::atomic<bool> is_away = true;
  place.read = [&, read = place.read] {
    if (is_away) throw RunError("away");
    return read();
  };
  Lease lease(place, "t", kQuick);
  EXPECT_FALSE(lease.is_lost());
  error_of<RunError>([&] { lease.check(); });  // nothing is stored before it is renewed
  is_away = false;
  lease.check();
}

TEST(Lease, AHolderThatFindsAnotherTokenHasLostIt) {
  Text text;
  Lease lease(text.place(), kQuick);
  lease.check();
  text.hold("another machine", 7, 25);
  for (int i = 0; i < 500; ++i) {  // until a heartbeat has seen it
    try {
      lease.check();
    } catch (const RunError& e) {
      EXPECT_NE(std::string(e.what()).find("process 7 on far"), std::string::npos) << e.what();
      EXPECT_EQ(text.json().at("host").as_string(), "far");  // nor is it released in its name
      EXPECT_TRUE(lease.is_lost());
      return;
    }
    std::this_thread::sleep_for(10ms);
  }
  FAIL() << "the lease was not lost";
}

// Both see a free lock and write; the later write survives.
TEST(Lease, OfTwoThatTakeItAtOnceOneGoesOn) {
  for (int round = 0; round < 5; ++round) {
    Text text;
    std::atomic<int> num_taken = 0, num_refused = 0;
    std::atomic<bool> may_end = false;
    const auto take = [&] {
      try {
        const Lease lease(text.place(), {20ms, 2000ms, 60ms});
        ++num_taken;
        may_end.wait(false);
      } catch (const UserError&) {
        ++num_refused;
      }
    };
    std::thread a(take), b(take);
    for (int i = 0; i < 1000 && num_taken + num_refused < 2; ++i) std::this_thread::sleep_for(10ms);
    EXPECT_EQ(num_taken, 1);
    EXPECT_EQ(num_refused, 1);
    may_end = true;
    may_end.notify_all();
    a.join();
    b.join();
  }
}

}  // namespace
}  // namespace weft
