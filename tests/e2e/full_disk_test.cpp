// tests/e2e/full_disk_test.cpp: no space for a checkpoint, for metrics, for the final model.
//
// A file size limit (RLIMIT_FSIZE) stands in for the full disk: it needs no separate file system.
// The tiny model's weights are 105 KB and a checkpoint three times that.
#include <gtest/gtest.h>

#include <csignal>

#include "tests/e2e/tiny_run.h"
#include "tests/faults/preload.h"

namespace weft::testing {
namespace {

Ended train_with(const TinyRun& run, rlim_t file_bytes, const std::vector<std::string>& sets) {
  StartOptions options;
  options.file_bytes = file_bytes;
  return run_to_end(run.words("train", sets), options);
}

TEST(FullDisk, CheckpointFailsAndTheRunContinues) {
  const TinyRun run;
  const Ended ended = train_with(run, 200000, {});
  EXPECT_EQ(ended.exit_code, 1) << ended.err;  // since the last one failed too
  EXPECT_EQ(metric_texts(run.dir(), "loss").size(), 6u);
  const auto errors = event_lines(run.dir(), "error");
  ASSERT_EQ(errors.size(), 3u);  // retried each time
  EXPECT_EQ(errors[0].at("step").as_int(), 2);
  EXPECT_TRUE(event_lines(run.dir(), "checkpoint").empty());
  expect_parts(ended.err, {"checkpoint of step 2 could not be written", "step-00000002"});
  EXPECT_TRUE(std::filesystem::exists(run.dir() / "final/model.safetensors"));
}

TEST(FullDisk, OldCheckpointsSurviveAndTheNextOneIsWritten) {
  const TinyRun run;
  run.train_well({"train.steps=2"});
  const std::string hash = hash_of(run.checkpoint(2));
  const Ended full = train_with(run, 200000, {"train.steps=4"});
  EXPECT_EQ(full.exit_code, 1) << full.err;
  EXPECT_EQ(hash_of(run.checkpoint(2)), hash);
  EXPECT_FALSE(std::filesystem::exists(run.checkpoint(4)));
  run.train_well();
  EXPECT_EQ(metric_texts(run.dir(), "loss").size(), 6u);
  EXPECT_TRUE(std::filesystem::exists(run.checkpoint(6)));
  const TinyRun whole;
  whole.train_well();
  EXPECT_EQ(hash_of(run.dir()), hash_of(whole.dir()));
}

// With steps so long that the loss rises, only the first evaluation is the best; but it was not
// written, so that those after it are tried too.
TEST(FullDisk, BestThatWasNotWrittenIsNotTheBest) {
  const TinyRun run;
  const std::string eval = "data.eval=[" + (run / "eval.txt").string() + "]";
  const Ended ended = train_with(run, 200000, {eval, "train.eval_every=2", "train.lr=1.0"});
  EXPECT_EQ(ended.exit_code, 1) << ended.err;
  EXPECT_FALSE(std::filesystem::exists(run.dir() / "checkpoints/best"));
  const auto losses = metric_texts(run.dir(), "eval_loss");
  ASSERT_EQ(losses.size(), 3u);
  EXPECT_GT(std::stod(losses[1]), std::stod(losses[0]));
  EXPECT_EQ(event_lines(run.dir(), "error").size(), 6u);
}

// 143 promises a saved state: where there is none, the run has failed.
TEST(FullDisk, SignalWithoutRoomIsNoOrderlyEnd) {
  const TinyRun run;
  StartOptions options;
  options.file_bytes = 200000;
  Program program(run.words("train", {"train.steps=100000", "checkpoint.every=100000"}), options);
  program.wait_until([&] { return !metric_texts(run.dir(), "loss").empty(); });
  program.send(SIGTERM);
  const Ended ended = program.wait();
  EXPECT_EQ(ended.exit_code, 1) << ended.err;
  expect_parts(ended.err, {"SIGTERM", "could not be saved"});
}

// 0 promises a state to resume from, in every layout.
TEST(FullDisk, ALastStepThatCannotBeSavedIsNoGoodEnd) {
  const TinyRun run;
  for (const char* layout : {"parallel.dp=1", "parallel.dp=2", "parallel.mode=exact"}) {
    const std::vector<std::string> sets = {layout, std::string("name=") + &layout[9]};
    const std::filesystem::path dir = run.dir(&layout[9]);
    StartOptions options;
    options.env = fault_env("write:ENOSPC:step-00000006");
    const Ended ended = run_to_end(run.words("train", sets), options);
    EXPECT_EQ(ended.exit_code, 1) << layout << ended.err;
    const bool is_whole = std::string(layout) == "parallel.dp=1";
    expect_parts(ended.err, {"the last step, 6, could not be saved: ",
                             is_whole ? "final/ holds its model" : "no final/ is written",
                             "resumes from " + run.checkpoint(4, &layout[9]).string()});
    EXPECT_EQ(std::filesystem::exists(dir / "final/model.safetensors"), is_whole);
    EXPECT_TRUE(event_lines(dir, "finished").empty());
    run.train_well(sets);  // not taken for finished
    EXPECT_EQ(event_lines(dir, "finished").size(), 1u);
    EXPECT_TRUE(std::filesystem::exists(run.checkpoint(6, &layout[9])));
  }
}

// The state is saved: that its event is not does not make the end another.
TEST(FullDisk, ASignalsEventWithoutRoomIsOnlyLogged) {
  const TinyRun run;
  StartOptions options;
  options.env = fault_env("write:ENOSPC:events.jsonl:3");  // after started and checkpoint
  Program program(run.words("train", {"train.steps=100000", "checkpoint.every=100000"}), options);
  program.wait_until([&] { return !metric_texts(run.dir(), "loss").empty(); });
  program.send(SIGTERM);
  const Ended ended = program.wait();
  EXPECT_EQ(ended.exit_code, 143) << ended.err;
  expect_parts(ended.err, {"event \"stopped\" could not be written", "SIGTERM: saved at step"});
}

TEST(FullDisk, FinalModelFailsWithExitOne) {
  const TinyRun run;
  const Ended ended = train_with(run, 80000, {});
  EXPECT_EQ(ended.exit_code, 1) << ended.err;
  expect_parts(ended.err, {"error: ", "model.safetensors"});
  EXPECT_FALSE(std::filesystem::exists(run.dir() / "final"));
  EXPECT_EQ(metric_texts(run.dir(), "loss").size(), 6u);
}

TEST(FullDisk, MetricsFailWithExitOne) {
  const TinyRun run;
  const Ended ended = train_with(run, 8000, {"train.steps=100", "checkpoint.every=1000"});
  EXPECT_EQ(ended.exit_code, 1) << ended.err;
  expect_parts(ended.err, {"error: ", "metrics.jsonl"});
  // With room again it starts over, the torn line cut.
  run.train_well();
  EXPECT_EQ(metric_texts(run.dir(), "loss").size(), 6u);
}

}  // namespace
}  // namespace weft::testing
