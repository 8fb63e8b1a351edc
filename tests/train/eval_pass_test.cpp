// tests/train/eval_pass_test.cpp: how a loss is shown as a perplexity, and which evaluation is
// the best.
#include "train/eval_pass.h"

#include <gtest/gtest.h>

#include <cmath>

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

TEST(BestEvaluation, IsFinite) {
  const double nan = std::nan(""), infinity = HUGE_VAL;
  for (const char* measure : {"eval_loss", "exact_match"}) {
    EXPECT_TRUE(is_better(measure, 0.5, std::nullopt)) << measure;
    EXPECT_TRUE(is_better(measure, 0.5, nan)) << measure;  // of a run that kept one
    for (const double value : {nan, infinity, -infinity}) {
      EXPECT_FALSE(is_better(measure, value, std::nullopt)) << measure << value;
      EXPECT_FALSE(is_better(measure, value, 0.5)) << measure << value;
      EXPECT_FALSE(is_better(measure, value, nan)) << measure << value;
    }
  }
  EXPECT_TRUE(is_better("eval_loss", 1, 2) && is_better("exact_match", 2, 1));
  EXPECT_FALSE(is_better("eval_loss", 2, 1) || is_better("exact_match", 1, 2));
  EXPECT_FALSE(is_better("eval_loss", 1, 1) || is_better("exact_match", 1, 1));
}

}  // namespace
}  // namespace weft
