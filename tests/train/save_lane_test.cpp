// tests/train/save_lane_test.cpp: jobs in order, waits, errors.
#include "train/save_lane.h"

#include <gtest/gtest.h>
#include <pthread.h>

#include <atomic>
#include <stdexcept>
#include <vector>

namespace weft {
namespace {

TEST(SaveLane, JobsRunInOrderAndAWaitIsForOne) {
  std::vector<int> done;
  std::atomic<bool> may_end = false;
  SaveLane lane;
  const int64_t first = lane.post([&] { done.push_back(1); });
  lane.post([&] {
    may_end.wait(false);
    done.push_back(2);
  });
  lane.wait_for(first);  // not for the second, which cannot end yet
  EXPECT_EQ(done, (std::vector<int>{1}));
  EXPECT_FALSE(lane.wait_for(2, std::chrono::milliseconds(5)));
  may_end = true;
  may_end.notify_all();
  EXPECT_TRUE(lane.wait_for(2, std::chrono::seconds(60)));
  lane.wait();
  EXPECT_EQ(done, (std::vector<int>{1, 2}));
  lane.wait();  // nothing left
}

TEST(SaveLane, AnErrorIsThrownByEveryWaitAndSkipsTheRest) {
  bool has_run = false;
  SaveLane lane;
  lane.post([] { throw std::runtime_error("lost"); });
  lane.post([&] { has_run = true; });
  EXPECT_THROW(lane.wait(), std::runtime_error);
  EXPECT_THROW(lane.wait_for(1), std::runtime_error);
  EXPECT_FALSE(has_run);
}

TEST(SaveLane, TheDestructorEndsWhatWasPosted) {
  int done = 0;
  {
    SaveLane lane;
    for (int i = 0; i < 5; ++i) lane.post([&] { ++done; });
  }
  EXPECT_EQ(done, 5);
}

// A default stack that no address space has: threads cannot be started.
TEST(SaveLane, WithoutAThreadJobsAreDoneAtOnce) {
  pthread_attr_t usual, huge;
  ASSERT_EQ(pthread_getattr_default_np(&usual), 0);
  ASSERT_EQ(pthread_attr_init(&huge), 0);
  ASSERT_EQ(pthread_attr_setstacksize(&huge, size_t{1} << 50), 0);
  ASSERT_EQ(pthread_setattr_default_np(&huge), 0);
  int done = 0;
  {
    SaveLane lane;
    EXPECT_EQ(lane.post([&] { ++done; }), 1);
    EXPECT_EQ(done, 1);
    ASSERT_EQ(pthread_setattr_default_np(&usual), 0);
    lane.post([&] { throw std::runtime_error("lost"); });  // still without: not tried again
    EXPECT_EQ(lane.post([&] { ++done; }), 3);
    EXPECT_EQ(done, 1);
    EXPECT_THROW(lane.wait(), std::runtime_error);
  }
  pthread_attr_destroy(&huge);
  pthread_attr_destroy(&usual);
}

}  // namespace
}  // namespace weft
