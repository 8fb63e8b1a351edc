// tests/train/schedule_warnings_test.cpp: warmup past the end, rates that jump, and causes of NaN.
#include "config/schedule_warnings.h"

#include <gtest/gtest.h>

#include "train/not_finite.h"

namespace weft {
namespace {

ScheduleConfig linear(int64_t warmup = 0) {
  ScheduleConfig c;
  c.schedule = "linear";
  c.lr = 1e-3;
  c.warmup_steps = warmup;
  return c;
}

TEST(ScheduleWarnings, WarmupLongerThanTheRun) {
  const std::string warning = long_warmup(linear(100), {20});
  EXPECT_NE(warning.find("train.warmup_steps is 100, but the run has 20 steps"), std::string::npos);
  EXPECT_NE(warning.find("to 0.00019 at the last step"), std::string::npos) << warning;
  EXPECT_NE(warning.find("train.lr 0.001"), std::string::npos) << warning;
  EXPECT_EQ(long_warmup(linear(20), {20}), "");
  EXPECT_EQ(long_warmup(linear(100), {}), "");  // the number of steps is unknown
  const RunLength most = most_steps(47, 8, 3);  // 5 whole batches each
  EXPECT_NE(long_warmup(linear(16), most).find("the run has at most 15 steps"), std::string::npos);
  EXPECT_EQ(long_warmup(linear(15), most), "");
}

// A run of 100 steps whose rate came to 1e-5, resumed with 200.
TEST(ScheduleWarnings, RaisedStepsMakeTheRateJump) {
  const double last = learning_rate(linear(), 99, 100);
  const std::string warning = rate_jump(linear(), 200, {100, 100, last});
  EXPECT_NE(warning.find("1e-05 at step 100, 0.0005 at step 101"), std::string::npos) << warning;
  EXPECT_NE(warning.find("schedule linear over 200 steps"), std::string::npos) << warning;
}

TEST(ScheduleWarnings, AContinuedRateIsNotAJump) {
  for (const char* name : {"constant", "linear", "cosine", "wsd", "log_warmup"}) {
    ScheduleConfig c = linear(5);
    c.schedule = name;
    c.decay_steps = 4;
    for (int64_t step = 1; step < 20; ++step) {
      const ResumePoint at{step, step, learning_rate(c, step - 1, 20)};
      EXPECT_EQ(rate_jump(c, 20, at), "") << name << " " << step;
      // A last step that was skipped: its rate is used again.
      const ResumePoint skipped{step, step - 1, learning_rate(c, step - 1, 20)};
      EXPECT_EQ(rate_jump(c, 20, skipped), "") << name << " " << step;
    }
  }
  EXPECT_EQ(rate_jump(linear(), 200, {0, 0, std::nullopt}), "");
  EXPECT_EQ(rate_jump(linear(), 100, {100, 100, 1e-5}), "");  // there is no next step
}

TEST(NotFiniteHint, ListsApplicableCausesInOrder) {
  RunConfig c;
  c.model.init = "random";
  c.train.schedule.lr = 0.5;
  c.train.clip_norm = 0;
  const std::string hint = not_finite_hint(c, 3);
  size_t at = 0;
  for (const char* part :
       {"1. train.lr is 0.5: try 0.05", "2. train.warmup_steps is 0", "3. train.clip_norm is off",
        "4. the rows of that step", "5. config.json of the model: rms_norm_eps"}) {
    const size_t found = hint.find(part, at);
    ASSERT_NE(found, std::string::npos) << part << "\n" << hint;
    at = found;
  }
  EXPECT_EQ(hint.find("precision"), std::string::npos) << hint;
}

TEST(NotFiniteHint, OmitsImpossibleCauses) {
  RunConfig c;
  c.model.path = "some-model";
  c.train.schedule.warmup_steps = 10;
  c.train.clip_norm = 1;
  c.train.precision = "bf16";
  c.train.master_weights = false;
  std::string hint = not_finite_hint(c, 3);
  EXPECT_EQ(hint.find("clip_norm"), std::string::npos) << hint;
  EXPECT_EQ(hint.find("warmup_steps"), std::string::npos) << hint;
  EXPECT_NE(hint.find("2. train.precision is bf16"), std::string::npos) << hint;
  EXPECT_NE(hint.find("train.master_weights: true"), std::string::npos) << hint;
  // Before the first update the rate cannot be the cause.
  hint = not_finite_hint(c, 0);
  EXPECT_EQ(hint.find("train.lr is"), std::string::npos) << hint;
  EXPECT_NE(hint.find("1. the weights of some-model"), std::string::npos) << hint;
}

}  // namespace
}  // namespace weft
