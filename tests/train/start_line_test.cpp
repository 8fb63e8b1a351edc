// tests/train/start_line_test.cpp: keys that were set but have no effect.
#include <gtest/gtest.h>

#include "model/load.h"
#include "planning/idle_keys.h"
#include "tests/tiny_config.h"

namespace weft {
namespace {

std::vector<std::string> idle_keys(const RunConfig& c) {
  return weft::idle_keys(c, *make_model(parse_json(testing::kTinyConfig, "config.json"), {}));
}

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

// One rank has no supervisor; values that are the defaults may be a resolved file's.
TEST(IdleKeys, OfRestartsWithOneRank) {
  RunConfig c;
  c.launch.max_restarts = -1;
  EXPECT_EQ(idle_keys(c),
            std::vector<std::string>{
                "launch.max_restarts: -1 has no effect with one rank, which nobody watches or "
                "replaces; the same command resumes it"});
  c.launch.hang_timeout_s = 60;
  c.launch.snapshot_every = "5";
  c.launch.restart_reset_steps = 0;
  EXPECT_EQ(idle_keys(c).size(), 4u);
  c.parallel.tp = 2;
  EXPECT_TRUE(idle_keys(c).empty());
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

TEST(IdleKeys, AnEarlyStopThatCannotBeReached) {
  RunConfig c;
  c.train.early_stop = 3;
  c.train.steps = 30;
  EXPECT_TRUE(idle_keys(c).empty());  // evaluations are at the ends of epochs of unknown length
  c.train.eval_every = 8;             // 8, 16, 24 and the end
  EXPECT_TRUE(idle_keys(c).empty());
  c.train.eval_every = 10;
  EXPECT_EQ(idle_keys(c), std::vector<std::string>{
                              "train.early_stop: 3 has no effect: the run has 3 evaluations"});
  c.train.steps.reset();
  c.train.eval_every = 0;
  c.train.epochs = 1;
  EXPECT_EQ(idle_keys(c), std::vector<std::string>{
                              "train.early_stop: 3 has no effect: the run has 1 evaluation"});
  c.train.epochs = 4;
  EXPECT_TRUE(idle_keys(c).empty());
}

TEST(IdleKeys, TheLengthOfTargetsIsForEncoderDecoders) {
  RunConfig c;
  c.data.target_length = 64;
  const std::vector<std::string> lines = idle_keys(c);
  ASSERT_EQ(lines.size(), 1u);
  EXPECT_TRUE(lines[0].starts_with("data.target_length: 64 has no effect")) << lines[0];
  const Json t5 = parse_json(
      R"({"architectures": ["T5ForConditionalGeneration"], "pad_token_id": 0, "d_model": 32,
      "d_kv": 8, "d_ff": 32, "num_heads": 4, "num_layers": 1, "vocab_size": 64})",
      "config.json");
  EXPECT_TRUE(weft::idle_keys(c, *make_model(t5, {})).empty());
}

}  // namespace
}  // namespace weft
