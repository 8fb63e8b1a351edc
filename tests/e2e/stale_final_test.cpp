// tests/e2e/stale_final_test.cpp: final/ belongs to the run's last step, or the run is not
// finished.
#include <gtest/gtest.h>

#include <csignal>

#include "tests/e2e/tiny_run.h"
#include "tests/faults/preload.h"

namespace weft::testing {
namespace {

// The last checkpoint is saved before final/ is replaced: killed between the two, the run has all
// its steps and the model of its earlier end.
TEST(StaleFinal, IsReplacedWhereTheRunWasKilledBefore) {
  const TinyRun run;
  run.train_well({"train.steps=4"});
  const std::string earlier = weights_of(run.dir() / "final");
  StartOptions options;
  options.env = fault_env("open:KILL:/final.writing/");
  EXPECT_EQ(run_to_end(run.words("train", {}), options).signal, SIGKILL);
  EXPECT_TRUE(std::filesystem::exists(run.checkpoint(6)));
  EXPECT_EQ(weights_of(run.dir() / "final"), earlier);
  run.train_well();
  EXPECT_EQ(weights_of(run.dir() / "final"), weights_of(run.checkpoint(6)));
  EXPECT_NE(weights_of(run.dir() / "final"), earlier);
  EXPECT_EQ(metric_texts(run.dir(), "grad_norm").size(), 6u);
  // Now it is finished, and reported without a new start.
  const size_t starts = event_lines(run.dir(), "started").size();
  run.train_well();
  EXPECT_EQ(event_lines(run.dir(), "started").size(), starts);
}

// The remaining files record no end, but the model exists: no start from step 0 replaces it.
void expect_model_is_kept(const TinyRun& run) {
  const auto before = bytes_below(run.dir());
  for (const char* lr : {"train.lr=0.01", "train.lr=0.02"}) {
    const Ended same = run.train({lr});
    EXPECT_EQ(same.exit_code, 2) << same.err;
    expect_parts(same.err, {"final holds a model", "there is no checkpoint to resume from",
                            "step 0 would replace", "--overwrite", "name=NEW",
                            "model.path=" + (run.dir() / "final").string()});
    const Ended never = run.train({lr}, {"--resume", "never"});
    EXPECT_EQ(never.exit_code, 2) << never.err;
    expect_parts(never.err, {"has a model in final/", "--overwrite", "name=NEW"});
  }
  EXPECT_EQ(bytes_below(run.dir()), before);
  // What the hint says helps.
  const std::string model = (run.dir() / "final").string();
  run.train_well({"name=further", "model.path=" + model, "model.init=pretrained"});
  EXPECT_EQ(bytes_below(run.dir()), before);
  run.train_well({"train.lr=0.02"}, {"--overwrite"});
  EXPECT_TRUE(std::filesystem::exists(run.checkpoint(6)));
}

TEST(StaleFinal, IsKeptWhereCheckpointsAndEventsWereRemoved) {
  const TinyRun run;
  run.train_well();
  std::filesystem::remove_all(run.dir() / "checkpoints");
  std::filesystem::remove(run.dir() / "events.jsonl");
  expect_model_is_kept(run);
}

TEST(StaleFinal, IsKeptWhereNoStepCouldBeSaved) {
  const TinyRun run;
  StartOptions options;
  options.env = fault_env("write:ENOSPC:checkpoints/step-");
  const Ended full = run_to_end(run.words("train", {}), options);
  EXPECT_EQ(full.exit_code, 1) << full.err;
  expect_parts(full.err, {"could not be saved: final/ holds its model", "free space on the disk",
                          "there is no checkpoint to resume from", "name=NEW", "--overwrite"});
  EXPECT_FALSE(contains(full.err, "the same command resumes")) << full.err;
  EXPECT_TRUE(event_lines(run.dir(), "finished").empty());
  expect_model_is_kept(run);
}

// Initial weights are not a trained model.
TEST(StaleFinal, OfStepZeroIsReplaced) {
  const TinyRun run;
  run.train_well({"train.steps=0"});
  const std::string initial = weights_of(run.dir() / "final");
  run.train_well();
  EXPECT_NE(weights_of(run.dir() / "final"), initial);
}

}  // namespace
}  // namespace weft::testing
