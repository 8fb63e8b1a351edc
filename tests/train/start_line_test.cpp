// tests/train/start_line_test.cpp: keys that were set but have no effect.
#include <gtest/gtest.h>

#include "planning/idle_keys.h"

namespace weft {
namespace {

TEST(IdleKeys, AreReportedOnlyWhereTheyApply) {
  RunConfig c;
  for (const char* precision : {"fp32", "bf16", "fp16"}) {
    c.train.precision = precision;
    EXPECT_TRUE(idle_keys(c).empty()) << precision;
  }
  c.train.loss_scale = 1024;
  EXPECT_TRUE(idle_keys(c).empty());  // of fp16
  for (const std::string precision : {"fp32", "bf16"}) {
    c.train.precision = precision;
    const std::vector<std::string> lines = idle_keys(c);
    ASSERT_EQ(lines.size(), 1u);
    EXPECT_NE(
        lines[0].find("train.loss_scale: 1024 has no effect with train.precision " + precision),
        std::string::npos)
        << lines[0];
  }
  c.parallel.shard = "zero1";
  EXPECT_EQ(idle_keys(c).size(), 2u);
  c.parallel.dp = 2;
  EXPECT_EQ(idle_keys(c).size(), 1u);
}

TEST(IdleKeys, OfOptimizersThatAreNotTheRuns) {
  RunConfig c;
  c.train.optimizer.momentum = 0.9;
  EXPECT_EQ(idle_keys(c), std::vector<std::string>{
                              "train.momentum: 0.9 has no effect with train.optimizer adamw"});
  c.train.optimizer.name = "sgd";
  EXPECT_TRUE(idle_keys(c).empty());
  c.train.optimizer.betas = {0.8, 0.9};
  c.train.optimizer.eps = 1e-6;
  EXPECT_EQ(idle_keys(c).size(), 2u);
}

}  // namespace
}  // namespace weft
