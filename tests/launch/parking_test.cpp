// tests/launch/parking_test.cpp: which ranks are killed that do not park, and when.
#include "launch/parking.h"

#include <gtest/gtest.h>

#include <chrono>
#include <thread>
#include <vector>

namespace weft {
namespace {

// Two ranks that never park; their time is over when it begins.
class ParkingTest : public ::testing::Test {
 protected:
  static JobOptions options() {
    JobOptions options;
    options.num_ranks = 2;
    options.program = WEFT_RANK_PROGRAM;
    options.argv = {"rank_program", "2", "deaf"};
    options.park_ms = options.hung_park_ms = options.new_park_ms = 0;
    return options;
  }
  ParkingTest() {
    for (int r = 0; r < 2; ++r) ranks_.start(r);
  }
  bool is_quiet_soon() {
    for (const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
         std::chrono::steady_clock::now() < end;) {
      static_cast<void>(ranks_.reap());
      if (parking_.is_quiet()) return true;
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
    return false;
  }
  void set_phases(Phase first, Phase second) {
    ranks_.world().heartbeat(0).note(first, 1);
    ranks_.world().heartbeat(1).note(second, 1);
  }
  JobOptions options_ = options();
  LocalRanks ranks_{options_};
  std::vector<int> hung_;
  Parking parking_{options_, ranks_,
                   [this](int rank, const std::string&, bool) { hung_.push_back(rank); }};
};

// Reading a stack takes up to seconds, during which an agent gives no sign of life.
TEST_F(ParkingTest, OneRankIsKilledPerLook) {
  set_phases(Phase::kPasses, Phase::kPasses);
  parking_.begin("a rank is gone");
  EXPECT_FALSE(parking_.is_quiet());
  EXPECT_EQ(hung_, (std::vector<int>{0}));
  EXPECT_FALSE(parking_.is_quiet());
  EXPECT_EQ(hung_, (std::vector<int>{0, 1}));
  EXPECT_TRUE(is_quiet_soon());
}

TEST_F(ParkingTest, RankZeroThatFinishesIsNeverLate) {
  set_phases(Phase::kPasses, Phase::kPasses);
  ranks_.world().note_finishing();
  parking_.begin("a rank is gone");
  for (int i = 0; i < 3; ++i) EXPECT_FALSE(parking_.is_quiet());
  EXPECT_EQ(hung_, (std::vector<int>{1}));
  ranks_.kill(0);
  EXPECT_TRUE(is_quiet_soon());
}

// One that recovers may wait for the dead rank itself; one that saves completes what it has begun.
TEST_F(ParkingTest, ARankThatRecoversHasLessTimeAndIsNotAccused) {
  options_.park_ms = options_.hung_park_ms = 3'600'000;
  set_phases(Phase::kRecovering, Phase::kSaving);
  parking_.begin("a rank is gone");
  for (int i = 0; i < 3; ++i) EXPECT_FALSE(parking_.is_quiet());
  EXPECT_TRUE(ranks_[0].was_killed);
  EXPECT_FALSE(ranks_[1].was_killed);
  EXPECT_EQ(hung_, (std::vector<int>{}));
  ranks_.kill(1);
  EXPECT_TRUE(is_quiet_soon());
}

}  // namespace
}  // namespace weft
