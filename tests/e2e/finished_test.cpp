// tests/e2e/finished_test.cpp: a finished run is reported as such, whatever else is gone.
#include <gtest/gtest.h>

#include <csignal>
#include <fstream>

#include "tests/e2e/tiny_run.h"
#include "tests/faults/preload.h"

namespace weft::testing {
namespace {

namespace fs = std::filesystem;

// Neither the memory check nor a rank may need the model or the rows first.
TEST(Finished, NeedsNeitherModelNorRows) {
  const TinyRun run;
  const std::vector<std::string> two = {"name=two", "parallel.dp=2"};
  run.train_well();
  run.train_well(two);
  const std::string file = slurp(run.file());  // of epochs, not steps
  run.write("run.yaml", std::string(file).replace(file.find("steps: 6"), 8, "epochs: 1"));
  run.train_well({"name=epoch"});
  run.write("run.yaml", file);
  fs::remove_all(run / "model");
  fs::remove(run / "train.txt");
  for (const auto& sets : {std::vector<std::string>{}, two}) {
    const Ended ended = run.train(sets);
    EXPECT_EQ(ended.exit_code, 0) << ended.err;
    expect_parts(ended.err, {"is finished at step 6", "raise train.steps"});
  }
  EXPECT_EQ(run.train({"train.steps=8"}).exit_code, 2);  // which needs both
  run.write("run.yaml", std::string(file).replace(file.find("steps: 6"), 8, "epochs: 1"));
  const Ended ended = run.train({"name=epoch"});
  EXPECT_EQ(ended.exit_code, 0) << ended.err;
  expect_parts(ended.err, {"is finished at step "});
}

// Its run.yaml has 8 steps; no event records its start.
TEST(Finished, AStartThatFailedBeforeItsFirstEventFinishesNothing) {
  const TinyRun run;
  run.train_well();
  StartOptions options;
  options.env = fault_env("write:ENOSPC:events.jsonl");
  const Ended failed = run_to_end(run.words("train", {"train.steps=8"}), options);
  EXPECT_EQ(failed.exit_code, 1) << failed.err;
  run.train_well({"train.steps=8"});
  EXPECT_TRUE(fs::exists(run.checkpoint(8)));
}

TEST(Finished, DamagedCheckpointsAreNamedAsDamaged) {
  const TinyRun run;
  run.train_well({"checkpoint.keep=1"});
  const fs::path file = run.checkpoint(6) / "rank-00000.safetensors";
  const std::string whole = slurp(file);
  fs::resize_file(file, whole.size() - 1);
  const Ended same = run.train({"checkpoint.keep=1"});
  EXPECT_EQ(same.exit_code, 0) << same.err;
  expect_parts(same.err, {"warning: ", "step-00000006", "is finished at step 6"});
  // A damaged slice is found before raising train.steps is suggested.
  std::ofstream(file, std::ios::binary) << whole;
  flip_in_the_middle(file);
  const Ended unread = run.train({"checkpoint.keep=1"});
  EXPECT_EQ(unread.exit_code, 0) << unread.err;
  expect_parts(unread.err, {"warning: ", "step-00000006", "is finished at step 6"});
  EXPECT_FALSE(contains(unread.err, "raise train.steps")) << unread.err;
  const Ended further = run.train({"checkpoint.keep=1", "train.steps=8"});
  EXPECT_EQ(further.exit_code, 2) << further.err;
  expect_parts(further.err, {"none of its checkpoints is sound", "step-00000006", "damaged",
                             "train.steps: 6 -> 8"});
  EXPECT_FALSE(contains(further.err, "are gone")) << further.err;
}

// The run ends like any other run: with a checkpoint that commands find, and nothing left to do.
TEST(Finished, ARunWithoutStepsHasACheckpoint) {
  const TinyRun run;
  const std::vector<std::string> none = {"train.steps=0"};
  run.train_well(none);
  const Ended same = run.train(none);
  EXPECT_EQ(same.exit_code, 0) << same.err;
  expect_parts(same.err, {"is finished at step 0", "raise train.steps"});
  EXPECT_EQ(event_lines(run.dir(), "started").size(), 1u);
  EXPECT_EQ(weights_of(run.dir()), weights_of(run.dir() / "final"));
}

// What a message names as sound has been read: here the one before has a damaged slice too.
TEST(Finished, TheCheckpointThatIsNamedIsSound) {
  const TinyRun run;
  run.train_well();
  fs::remove_all(run.checkpoint(6));
  flip_in_the_middle(run.checkpoint(4) / "rank-00000.safetensors");
  const Ended same = run.train();
  EXPECT_EQ(same.exit_code, 0) << same.err;
  expect_parts(same.err, {"step-00000004", "newest sound one is " + run.checkpoint(2).string()});
  const Ended further = run.train({"train.steps=8"});
  EXPECT_EQ(further.exit_code, 2) << further.err;
  expect_parts(further.err, {"newest sound checkpoint is of step 2", "step-00000004/rank-00000",
                             "--resume " + run.checkpoint(2).string()});
}

// Only the last checkpoint is gone or damaged: nothing is retrained.
TEST(Finished, AnOlderCheckpointDoesNotUndoTheEnd) {
  for (const bool is_gone : {false, true}) {
    const TinyRun run;
    run.train_well();
    if (is_gone) fs::remove_all(run.checkpoint(6));
    if (!is_gone) flip_in_the_middle(run.checkpoint(6) / "rank-00000.safetensors");
    const auto before = bytes_below(run.dir());
    for (const char* set : {"train.log_every=1", "train.log_every=2", "parallel.dp=2"}) {
      const Ended same = run.train({set});
      EXPECT_EQ(same.exit_code, 0) << same.err;
      expect_parts(same.err, {"is finished at step 6"});
    }
    const Ended further = run.train({"train.steps=8"});
    EXPECT_EQ(further.exit_code, 2) << further.err;
    expect_parts(further.err,
                 {"is finished at step 6", "newest sound checkpoint is of step 4",
                  "train.steps: 6 -> 8", is_gone ? "the checkpoint of step 6 is gone" : "damaged:",
                  "--resume " + run.checkpoint(4).string()});
    EXPECT_EQ(bytes_below(run.dir()), before);
    run.train_well({"train.steps=8"}, {"--resume", run.checkpoint(4).string()});
    EXPECT_TRUE(fs::exists(run.checkpoint(8)));
    EXPECT_EQ(metric_texts(run.dir(), "loss").size(), 8u);
  }
}

// A start with a raised end stored its run.yaml and failed before its first event; then the last
// checkpoint was damaged. Those steps are still missing.
TEST(Finished, AnEndThatWasRaisedByAFailedStartIsNotReached) {
  for (const bool has_older : {true, false}) {
    const TinyRun run;
    run.train_well();
    const std::string stored = slurp(run.dir() / "run.yaml");
    run.write("runs/tiny/run.yaml",
              std::string(stored).replace(stored.find("steps: 6"), 8, "steps: 8"));
    flip_in_the_middle(run.checkpoint(6) / "rank-00000.safetensors");
    if (!has_older) fs::remove_all(run.checkpoint(4));
    const Ended same = run.train({"train.steps=8"});
    EXPECT_EQ(same.exit_code, 2) << same.err;
    expect_parts(same.err, {"is finished at step 6", "train.steps: 6 -> 8"});
    const Ended back = run.train();  // to the end that was reached
    EXPECT_EQ(back.exit_code, 0) << back.err;
    expect_parts(back.err, {"is finished at step 6"});
  }
}

TEST(Finished, NorAreEpochs) {
  const TinyRun run;
  const std::string file = slurp(run.file());
  run.write("run.yaml", std::string(file).replace(file.find("steps: 6"), 8, "epochs: 2"));
  run.train_well();
  const std::string stored = slurp(run.dir() / "run.yaml");
  run.write("runs/tiny/run.yaml",
            std::string(stored).replace(stored.find("epochs: 2"), 9, "epochs: 3"));
  flip_in_the_middle(run.checkpoint(10) / "rank-00000.safetensors");
  const Ended same = run.train({"train.epochs=3"});
  EXPECT_EQ(same.exit_code, 2) << same.err;
  expect_parts(same.err, {"is finished at step 10", "train.epochs: 2 -> 3"});
  EXPECT_EQ(run.train().exit_code, 0);
}

// Epochs end the run; its older checkpoint is of an earlier epoch.
TEST(Finished, AnOlderCheckpointDoesNotUndoTheEndOfEpochs) {
  const TinyRun run;
  const std::string file = slurp(run.file());
  run.write("run.yaml", std::string(file).replace(file.find("steps: 6"), 8, "epochs: 2"));
  run.train_well();
  fs::remove_all(run.checkpoint(10));
  const auto before = bytes_below(run.dir());
  const Ended same = run.train();
  EXPECT_EQ(same.exit_code, 0) << same.err;
  expect_parts(same.err, {"is finished at step 10", "newest sound one is"});
  EXPECT_EQ(run.train({"train.epochs=3"}).exit_code, 2);
  EXPECT_EQ(bytes_below(run.dir()), before);
}

// A final/ with a truncated file does not count: it is rewritten from the last checkpoint.
TEST(Finished, ATruncatedFinalIsRewritten) {
  const TinyRun run;
  run.train_well();
  const std::string hash = hash_of(run.dir() / "final");
  fs::resize_file(run.dir() / "final/model.safetensors", 1000);
  run.train_well();
  EXPECT_EQ(hash_of(run.dir() / "final"), hash);
}

// The folder of runs was moved: with its checkpoints or without them, the run is finished.
TEST(Finished, KeysWithoutEffectOnStepsMayChange) {
  for (const bool has_checkpoints : {true, false}) {
    const TinyRun run;
    run.train_well();
    if (!has_checkpoints) fs::remove_all(run.dir() / "checkpoints");
    fs::rename(run / "runs", run / "moved");
    const auto before = bytes_below(run / "moved/tiny");
    for (const char* set : {"train.log_every=1", "train.log_every=3", "checkpoint.keep=1",
                            "launch.threads=2", "parallel.dp=2", "train.micro_batch=2"}) {
      const Ended ended = run.train({"storage=" + (run / "moved").string(), set});
      EXPECT_EQ(ended.exit_code, 0) << set << ended.err;
      expect_parts(ended.err, {"is finished at step 6"});
    }
    EXPECT_EQ(bytes_below(run / "moved/tiny"), before);
  }
}

TEST(Finished, ARefusedStartLeavesTheEventsAlone) {
  const TinyRun run;
  run.train_well({"parallel.dp=2"});
  const std::string events = slurp(run.dir() / "events.jsonl");
  EXPECT_EQ(run.train({"parallel.dp=2", "seed=9"}).exit_code, 2);
  EXPECT_EQ(slurp(run.dir() / "events.jsonl"), events);
}

TEST(Finished, ARankThatFailsInItsRunIsAnEvent) {
  const TinyRun run;
  StartOptions options;
  options.env = fault_env("mkdir:KILL:checkpoints/step-00000002");
  const Ended ended =
      run_to_end(run.words("train", {"parallel.dp=2", "launch.max_restarts=0"}), options);
  EXPECT_EQ(ended.exit_code, 75) << ended.err;
  const auto events = event_lines(run.dir(), "rank failed");
  ASSERT_EQ(events.size(), 1u) << ended.err;
  expect_parts(events[0].at("message").as_string(), {"SIGKILL"});
}

}  // namespace
}  // namespace weft::testing
