// tests/optim/schedule_test.cpp: docs/contract.md's learning rates at their edges.
#include "optim/schedule.h"

#include <gtest/gtest.h>

#include <cmath>

namespace weft {
namespace {

ScheduleConfig shape(const char* name, int64_t warmup, int64_t decay = 0, double floor = 0) {
  return {name, 2.0, warmup, decay, floor};
}

TEST(Schedule, ConstantWarmsUpAndStays) {
  const ScheduleConfig c = shape("constant", 4);
  EXPECT_EQ(learning_rate(c, 0, 10), 0);
  EXPECT_EQ(learning_rate(c, 1, 10), 0.5);
  EXPECT_EQ(learning_rate(c, 3, 10), 1.5);
  EXPECT_EQ(learning_rate(c, 4, 10), 2);
  EXPECT_EQ(learning_rate(c, 9, 10), 2);
  EXPECT_EQ(learning_rate(shape("constant", 0), 0, 10), 2);
}

// (E - s) / (E - W): E = 10, W = 2.
TEST(Schedule, LinearFallsToOneStepAboveZero) {
  const ScheduleConfig c = shape("linear", 2);
  EXPECT_EQ(learning_rate(c, 0, 10), 0);
  EXPECT_EQ(learning_rate(c, 1, 10), 1);
  EXPECT_EQ(learning_rate(c, 2, 10), 2);
  EXPECT_EQ(learning_rate(c, 3, 10), 1.75);
  EXPECT_EQ(learning_rate(c, 9, 10), 0.25);
  EXPECT_EQ(learning_rate(shape("linear", 0), 9, 10), 0.2);
}

TEST(Schedule, CosineHasItsFormula) {
  const ScheduleConfig c = shape("cosine", 2);
  EXPECT_EQ(learning_rate(c, 0, 10), 0);
  EXPECT_EQ(learning_rate(c, 2, 10), 2);
  EXPECT_NEAR(learning_rate(c, 6, 10), 1, 1e-15);
  EXPECT_NEAR(learning_rate(c, 9, 10), 0.07612046748871326, 1e-15);  // 1 + cos(7 pi / 8)
}

// 1 until the last four steps, then 4/4, 3/4, 2/4, 1/4.
TEST(Schedule, WsdFallsOverTheLastSteps) {
  const ScheduleConfig c = shape("wsd", 2, 4);
  EXPECT_EQ(learning_rate(c, 0, 10), 0);
  EXPECT_EQ(learning_rate(c, 1, 10), 1);
  EXPECT_EQ(learning_rate(c, 2, 10), 2);
  EXPECT_EQ(learning_rate(c, 5, 10), 2);
  EXPECT_EQ(learning_rate(c, 6, 10), 2);
  EXPECT_EQ(learning_rate(c, 7, 10), 1.5);
  EXPECT_EQ(learning_rate(c, 9, 10), 0.5);
  EXPECT_EQ(learning_rate(shape("wsd", 2, 0), 9, 10), 2);
}

// min(1, log(max(1, s)) / log(max(2, W))): what DeepSpeed's optimizer sees.
TEST(Schedule, LogWarmup) {
  const ScheduleConfig c = shape("log_warmup", 100);
  EXPECT_EQ(learning_rate(c, 0, 1000), 0);
  EXPECT_EQ(learning_rate(c, 1, 1000), 0);
  EXPECT_NEAR(learning_rate(c, 10, 1000), 1, 1e-15);
  EXPECT_NEAR(learning_rate(c, 2, 1000), 2 * 0.15051499783199060, 1e-15);
  EXPECT_EQ(learning_rate(c, 100, 1000), 2);
  EXPECT_EQ(learning_rate(c, 999, 1000), 2);
  EXPECT_EQ(learning_rate(shape("log_warmup", 0), 2, 1000), 2);
}

// r + (1 - r) f after warmup; not during warmup.
TEST(Schedule, FloorAppliesAfterWarmup) {
  const ScheduleConfig c = shape("linear", 2, 0, 0.5);
  EXPECT_EQ(learning_rate(c, 0, 10), 0);
  EXPECT_EQ(learning_rate(c, 1, 10), 1);
  EXPECT_EQ(learning_rate(c, 2, 10), 2);
  EXPECT_EQ(learning_rate(c, 6, 10), 1.5);
  EXPECT_EQ(learning_rate(c, 9, 10), 1.125);
}

TEST(Schedule, OddTotalsStayFinite) {
  for (const char* name : {"constant", "linear", "cosine", "wsd", "log_warmup"}) {
    const ScheduleConfig c = shape(name, 5, 7, 0.1);
    for (int64_t total : {0, 1, 5, 6}) {
      for (int64_t s = 0; s < 12; ++s) {
        const double rate = learning_rate(c, s, total);
        EXPECT_TRUE(std::isfinite(rate) && rate >= 0 && rate <= 2) << name << s << "/" << total;
      }
    }
  }
}

TEST(Schedule, WhichNeedTheEnd) {
  for (const char* name : {"linear", "cosine", "wsd"})
    EXPECT_TRUE(schedule_needs_total(shape(name, 0)));
  for (const char* name : {"constant", "log_warmup"})
    EXPECT_FALSE(schedule_needs_total(shape(name, 0)));
}

}  // namespace
}  // namespace weft
