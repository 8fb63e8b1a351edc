// tests/e2e/dropout_test.cpp: attention_dropout of config.json and model.dropout, through whole
// runs.
#include <fmt/core.h>
#include <gtest/gtest.h>

#include "tests/e2e/tiny_run.h"

namespace weft::testing {
namespace {

using Words = std::vector<std::string>;

std::vector<std::string> losses(const TinyRun& run, const std::string& name) {
  return metric_texts(run.dir(name), "loss");
}

class DropoutIn : public ::testing::TestWithParam<const char*> {
 protected:
  DropoutIn() { run_.change_config("attention_dropout", 0.1); }

  const TinyRun run_;
  const Words exact_ = {"parallel.mode=exact", "parallel.exact_dp=4",
                        std::string("data.layout=") + GetParam()};
};

TEST_P(DropoutIn, EveryLayoutHasTheSameBits) {
  const Ended ended = run_to_end(
      run_.words("verify", with(exact_, {"data.eval=[" + (run_ / "eval.txt").string() + "]"}),
                 {"--layouts", "dp=1; dp=2; dp=4,shard=zero3; tp=2; dp=2,tp=2,shard=zero2",
                  "--steps", "4", "--out", (run_ / "verify").string()}));
  EXPECT_EQ(ended.exit_code, 0) << ended.out << ended.err;
}

// Over two epoch ends, stopped in the middle of each, resumed in another layout.
TEST_P(DropoutIn, StopsAndOtherLayoutsChangeNothing) {
  run_.train_well(with(exact_, {"name=whole", "train.steps=12"}));
  const std::vector<Words> places = {
      {"parallel.dp=2", "train.micro_batch=1"}, {}, {"parallel.dp=2", "parallel.tp=2"}};
  for (const int step : {3, 7, 12}) {
    run_.train_well(with(with(exact_, {"name=parts", fmt::format("train.steps={}", step)}),
                         places[static_cast<size_t>(step) % places.size()]));
  }
  EXPECT_EQ(losses(run_, "whole"), losses(run_, "parts"));
  EXPECT_EQ(hash_of(run_.dir("whole")), hash_of(run_.dir("parts")));
}

INSTANTIATE_TEST_SUITE_P(Rows, DropoutIn, ::testing::Values("pad", "dynamic", "pack"),
                         [](const auto& p) { return std::string(p.param); });

// It need not be in the run file: config.json has it.
TEST(Dropout, TheEffectiveDropoutIsPrintedAtTheStart) {
  const TinyRun run;
  EXPECT_FALSE(contains(run.train({"name=none"}).err, ", dropout"));
  run.change_config("attention_dropout", 0.1);
  EXPECT_TRUE(contains(run.train({"name=some"}).err, ", dropout 0.1\n"));
  EXPECT_FALSE(contains(run.train({"name=off", "model.dropout=0"}).err, ", dropout"));
}

TEST(Dropout, ModelDropoutOverridesTheConfig) {
  const TinyRun run;
  run.train_well({"name=none"});
  run.train_well({"name=given", "model.dropout=0.1"});
  run.change_config("attention_dropout", 0.1);
  run.train_well({"name=configured"});
  run.train_well({"name=off", "model.dropout=0"});
  EXPECT_EQ(losses(run, "given"), losses(run, "configured"));
  EXPECT_EQ(losses(run, "off"), losses(run, "none"));
  EXPECT_NE(losses(run, "configured"), losses(run, "none"));
  // It is part of the training: a run does not resume with another.
  const Ended ended = run.train({"name=given", "model.dropout=0.2", "train.steps=8"});
  EXPECT_EQ(ended.exit_code, 2);
  EXPECT_TRUE(contains(ended.err, "model.dropout")) << ended.err;
}

// Evaluation is without dropout, in the run itself and in `weft eval`.
TEST(Dropout, EvalHasNone) {
  const TinyRun run;
  const Words sets = {"data.eval=[" + (run / "eval.txt").string() + "]", "train.lr=0"};
  run.train_well(with(sets, {"name=none"}));
  run.train_well(with(sets, {"name=some", "model.dropout=0.3"}));
  EXPECT_EQ(metric_texts(run.dir("none"), "eval_loss"), metric_texts(run.dir("some"), "eval_loss"));
  EXPECT_NE(losses(run, "none"), losses(run, "some"));
  const auto eval = [&](const char* dropout) {
    const Ended ended = run_to_end(run.words(
        "eval", with(sets, {"name=some", std::string("model.dropout=") + dropout}), {"--json"}));
    EXPECT_EQ(ended.exit_code, 0) << ended.err;
    return parse_json(ended.out, "eval").at("eval_loss").dump();
  };
  EXPECT_EQ(eval("0"), eval("0.3"));
}

TEST(Dropout, PlanKnowsIt) {
  const TinyRun run;
  run.train_well({"model.dropout=0.1"});
  const Ended plan = run_to_end(run.words("plan", {"model.dropout=0.1"}, {"--json"}));
  ASSERT_EQ(plan.exit_code, 0) << plan.err;
  EXPECT_EQ(parse_json(plan.out, "plan").at("arena").as_int(),
            event_lines(run.dir(), "started").at(0).at("arena_bytes").as_int());
}

}  // namespace
}  // namespace weft::testing
