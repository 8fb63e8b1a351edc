// tests/e2e/plan_test.cpp: `weft plan` predicts the memory of a run; `weft eval` measures what the
// run measured.
#include <gtest/gtest.h>

#include <cmath>

#include "tests/e2e/rank_memory.h"
#include "tests/e2e/tiny_run.h"

namespace weft::testing {
namespace {

Json plan_of(const TinyRun& run, const std::vector<std::string>& sets) {
  const Ended ended = run_to_end(run.words("plan", sets, {"--json"}));
  EXPECT_EQ(ended.exit_code, 0) << ended.err;
  return parse_json(ended.out, "plan");
}

void expect_plan_holds(const TinyRun& run, const std::vector<std::string>& sets) {
  const Json plan = plan_of(run, sets);
  Program program(run.words("train", sets));
  JobMemory memory;
  EXPECT_TRUE(program.wait_until(
      [&] {
        watch_job(program.pid(), &memory);
        return !program.is_running();
      },
      120));
  const Ended ended = program.wait();
  ASSERT_EQ(ended.exit_code, 0) << ended.err;
  const int64_t arena = plan.at("arena").as_int();
  const auto started = event_lines(run.dir(), "started");
  ASSERT_EQ(started.size(), 1u);
  EXPECT_EQ(started[0].at("arena_bytes").as_int(), arena);
  const Json& rank = plan.at("per_rank").as_array()[0];
  int64_t sum = 0;
  for (const char* part :
       {"parameters", "gradients", "states", "activations", "communication", "other"}) {
    EXPECT_GE(rank.at(part).as_int(), 0) << part;
    sum += rank.at(part).as_int();
  }
  EXPECT_EQ(sum, arena);
  EXPECT_EQ(rank.at("total").as_int(), arena);
  // A checkpoint was written beside training; its file also has a header.
  const int64_t snapshot = plan.at("snapshot").as_int();
  const int64_t file = event_lines(run.dir(), "checkpoint").at(0).at("rank_bytes").as_int();
  EXPECT_GT(file, snapshot);
  EXPECT_LT(file, snapshot + (64 << 10));
  const auto resident = static_cast<double>(plan.at("resident").as_int() + snapshot);
  const auto peak = static_cast<double>(memory.ranks[0].resident());
  EXPECT_GT(peak, 0);
  EXPECT_LT(std::abs(peak - resident), std::max(0.05 * resident, 48.0 * (1 << 20)))
      << "planned " << resident << ", was " << peak;
}

TEST(Plan, ArenaAndMemoryOfATinyRun) {
  const TinyRun run;
  expect_plan_holds(run, {});
}

// 11 M parameters, so that the arena (some 250 MiB) is most of the memory.
class LargerPlan : public ::testing::TestWithParam<const char*> {};

TEST_P(LargerPlan, HoldsForArenaAndMemory) {
  const TinyRun run;
  for (const auto& [key, value] : {std::pair{"hidden_size", 512}, {"intermediate_size", 1408}}) {
    run.change_config(key, value);
  }
  run.change_config("vocab_size", 10000);
  const std::string eval = "data.eval=[" + (run / "eval.txt").string() + "]";
  expect_plan_holds(run, {"train.steps=1", eval, "data.seq_length=16",
                          std::string("train.precision=") + GetParam()});
}

INSTANTIATE_TEST_SUITE_P(Precisions, LargerPlan, ::testing::Values("fp32", "bf16"),
                         [](const auto& p) { return std::string(p.param); });

TEST(Plan, ReportsFlopsAndDumps) {
  const TinyRun run;
  const Json plan = plan_of(run, {});
  // The products of one step: 6 FLOPs per weight and token (2 layers of q, k, v, o, gate, up, down,
  // and the head) and 7 of 24 x 24 x 32 per layer and row in attention, of which half is computed.
  const double weights = 2 * (32 * 32 * 2 + 2 * 32 * 16 + 3 * 32 * 48) + 260 * 32;
  const double attention = 7.0 * 2 * 24 * 24 * 32;
  EXPECT_DOUBLE_EQ(plan.at("flops").as_number(), 8 * (6.0 * weights * 24 + attention));
  EXPECT_TRUE(plan.at("wire").as_array().empty());
  const Ended dump = run_to_end(run.words("plan", {}, {"--dump"}));
  expect_parts(dump.out,
               {"pass: ", "finish: ", "head_loss_grad", "adamw", "model.norm.weight", "arena"});
}

TEST(Plan, DrawsTheMemoryOfAStep) {
  const TinyRun run;
  const Ended ended =
      run_to_end(run.words("plan", {"parallel.dp=2", "parallel.tp=2", "parallel.shard=zero3"},
                           {"--dump", "--out", (run / "memory.svg").string()}));
  EXPECT_EQ(ended.exit_code, 0) << ended.err;
  expect_parts(ended.out, {"all_reduce tp", "reduce_scatter dp", "one line per node"});
  expect_parts(slurp(run / "memory.svg"),
               {"<svg ", "dp=2", "communication", "bucket0.gathered0", "optimizer states"});
  const Ended png = run_to_end(run.words("plan", {}, {"--dump", "--out", "memory.png"}));
  EXPECT_EQ(png.exit_code, 2);
  expect_parts(png.err, {"--out memory.png", "--out memory.svg"});
  EXPECT_EQ(run_to_end(run.words("plan", {}, {"--out", "memory.svg"})).exit_code, 2);
}

TEST(Eval, EqualsTheLossInTraining) {
  const TinyRun run;
  const std::string eval = "data.eval=[" + (run / "eval.txt").string() + "]";
  run.train_well({eval});
  const Ended ended = run_to_end(run.words("eval", {eval}, {"--json"}));
  ASSERT_EQ(ended.exit_code, 0) << ended.err;
  const Json report = parse_json(ended.out, "eval");
  const auto told = metric_texts(run.dir(), "eval_loss");
  ASSERT_FALSE(told.empty());
  EXPECT_EQ(report.at("eval_loss").as_number(), std::stod(told.back()));
  EXPECT_DOUBLE_EQ(report.at("perplexity").as_number(), std::exp(std::stod(told.back())));
  EXPECT_EQ(report.at("rows").as_int(), 11);  // one of twelve is empty
  EXPECT_GT(report.at("target_tokens").as_int(), 0);
  EXPECT_TRUE(report.at("exact_match").is_null());
  const Ended final =
      run_to_end(run.words("eval", {eval}, {"--json", "--model", (run.dir() / "final").string()}));
  EXPECT_EQ(parse_json(final.out, "eval").at("eval_loss").as_number(), std::stod(told.back()));
  const Ended none = run_to_end(run.words("eval", {}, {}));
  EXPECT_EQ(none.exit_code, 2);
  expect_parts(none.err, {"data.eval"});
}

}  // namespace
}  // namespace weft::testing
