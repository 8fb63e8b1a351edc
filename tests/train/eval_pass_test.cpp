// tests/train/eval_pass_test.cpp: how a loss is shown as a perplexity.
#include "train/eval_pass.h"

#include <gtest/gtest.h>

#include "train/evaluate.h"

namespace weft {
namespace {

// exp(700) has 305 digits, exp(710) overflows a double.
TEST(Perplexity, StaysReadableWhateverTheLoss) {
  EXPECT_EQ(perplexity_text(2.5), "12.182");
  EXPECT_EQ(perplexity_text(2.5, 4), "12.1825");
  EXPECT_EQ(perplexity_text(20), "4.85e+08");
  EXPECT_EQ(perplexity_text(700), "1.01e+304");
  EXPECT_EQ(perplexity_text(1e5), "inf");
}

TEST(Perplexity, TheReportStaysJson) {
  EvalReport report;
  report.loss_sum = 1e5;
  report.target_tokens = 1;
  const Json read = parse_json(report.to_json().dump(), "report");
  EXPECT_EQ(read.at("eval_loss").as_number(), 1e5);
  EXPECT_TRUE(read.at("perplexity").is_null());
}

}  // namespace
}  // namespace weft
