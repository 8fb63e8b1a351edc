// tests/e2e/optimizer_test.cpp: train.optimizer: sgd from the outside: plan, resume, verify,
// refusals.
#include <gtest/gtest.h>

#include "base/file.h"
#include "tests/e2e/tiny_run.h"

namespace weft::testing {
namespace {

using Sets = std::vector<std::string>;

const Sets kSgd = {"train.optimizer=sgd", "train.momentum=0.9", "train.lr=0.05"};

Json rank_plan(const TinyRun& run, const Sets& sets) {
  const Ended ended = run_to_end(run.words("plan", sets, {"--json"}));
  EXPECT_EQ(ended.exit_code, 0) << ended.err;
  return parse_json(ended.out, "plan").at("per_rank").as_array()[0];
}

TEST(SgdRun, PlansItsStates) {
  const TinyRun run;
  const int64_t adamw = rank_plan(run, {}).at("states").as_int();
  EXPECT_GT(adamw, 0);
  EXPECT_EQ(rank_plan(run, {"train.optimizer=sgd"}).at("states").as_int(), 0);
  EXPECT_EQ(2 * rank_plan(run, kSgd).at("states").as_int(), adamw);
  // bf16 also has masters: half of AdamW's fp32 states and masters, less one.
  const Sets bf16 = {"train.precision=bf16"};
  const int64_t masters = rank_plan(run, with(bf16, {"train.optimizer=sgd"})).at("states").as_int();
  EXPECT_EQ(3 * masters, rank_plan(run, bf16).at("states").as_int());
  EXPECT_EQ(2 * masters, rank_plan(run, with(bf16, kSgd)).at("states").as_int());
}

TEST(SgdRun, ResumedHasTheBitsOfAnUninterruptedRun) {
  for (const char* momentum : {"train.momentum=0.9", "train.momentum=0"}) {
    const TinyRun run;
    const Sets sets = with(kSgd, {momentum, "checkpoint.every=2"});
    run.train_well(with(sets, {"name=whole", "train.steps=6"}));
    run.train_well(with(sets, {"name=parts", "train.steps=3"}));
    run.train_well(
        with(sets, {"name=parts", "train.steps=6", "parallel.dp=2", "parallel.shard=zero2"}));
    EXPECT_EQ(metric_texts(run.dir("parts"), "loss").size(), 6u);
    // Fast mode: the layout changes rounding; alone, the bits are the same.
    run.train_well(with(sets, {"name=alone", "train.steps=3"}));
    run.train_well(with(sets, {"name=alone", "train.steps=6"}));
    EXPECT_EQ(hash_of(run.dir("alone")), hash_of(run.dir("whole"))) << momentum;
    EXPECT_EQ(metric_texts(run.dir("alone"), "loss"), metric_texts(run.dir("whole"), "loss"));
    const Json state =
        parse_json(read_file(run.checkpoint(6, "whole") / "state.json", 1 << 20), "state.json");
    EXPECT_EQ(state.at("optimizer").as_string(), "sgd");
  }
}

TEST(SgdRun, ExactLayoutsAgree) {
  const TinyRun run;
  const Ended ended =
      run_to_end(run.words("verify", with(kSgd, {"parallel.mode=exact"}),
                           {"--layouts", "dp=1; dp=2; tp=2; dp=2,tp=2,shard=zero3", "--steps", "4",
                            "--out", (run / "out").string(), "--json"}));
  ASSERT_EQ(ended.exit_code, 0) << ended.err;
  const Json result = parse_json(ended.out, "verify");
  EXPECT_TRUE(result.at("ok").as_bool());
  EXPECT_EQ(result.at("layouts").as_array().size(), 4u);
  // Embedding, 2 layers of 9, last norm: as gradients, weights and momentum.
  const Json kept = parse_json(slurp(run / "out/verify.json"), "verify.json");
  EXPECT_EQ(kept.at("layouts").as_array()[3].at("tensors").as_int(), 3 * 20);
}

TEST(SgdRun, ACheckpointOfAnotherOptimizerIsRefused) {
  const TinyRun run;
  run.train_well({"train.steps=2"});
  const std::string before = hash_of(run.dir());
  Ended ended = run.train(with(kSgd, {"train.steps=3"}));
  EXPECT_EQ(ended.exit_code, 2);
  expect_parts(ended.err, {"train.optimizer: adamw -> sgd"});
  // From another run: its run file is not compared, its state is.
  ended = run.train(with(kSgd, {"name=other", "train.steps=3"}),
                    {"--resume", run.checkpoint(2).string()});
  EXPECT_EQ(ended.exit_code, 2) << ended.err;
  expect_parts(ended.err, {"adamw", "sgd", "hint: "});
  EXPECT_EQ(hash_of(run.dir()), before);
}

TEST(SgdRun, MomentumComesAndGoesOnlyWithItsState) {
  const TinyRun run;
  run.train_well({"train.optimizer=sgd", "train.steps=2"});
  Ended ended = run.train(with(kSgd, {"train.steps=3"}));
  EXPECT_EQ(ended.exit_code, 2) << ended.err;
  expect_parts(ended.err, {"has no states", "#momentum", "train.momentum"});
  // Another momentum is allowed, like another rate.
  run.train_well(with(kSgd, {"name=on", "train.steps=2"}));
  run.train_well(with(kSgd, {"name=on", "train.steps=3", "train.momentum=0.5"}));
  ended = run.train({"name=on", "train.optimizer=sgd", "train.steps=4"});
  EXPECT_EQ(ended.exit_code, 2) << ended.err;
  expect_parts(ended.err, {"has the states #momentum", "no states"});
}

TEST(SgdRun, KeysOfTheOtherOptimizerAreWarned) {
  const TinyRun run;
  Ended ended = run.train({"train.momentum=0.9", "train.steps=1"});
  EXPECT_EQ(ended.exit_code, 0) << ended.err;
  expect_parts(ended.err, {"train.momentum: 0.9 has no effect with train.optimizer adamw"});
  ended = run.train(
      with(kSgd, {"name=b", "train.betas=[0.8, 0.9]", "train.eps=1e-6", "train.steps=1"}));
  EXPECT_EQ(ended.exit_code, 0) << ended.err;
  expect_parts(ended.err, {"train.betas: [0.8, 0.9] has no effect with train.optimizer sgd",
                           "train.eps: 1e-06 has no effect with train.optimizer sgd"});
  EXPECT_FALSE(contains(ended.err, "train.momentum: "));
}

}  // namespace
}  // namespace weft::testing
