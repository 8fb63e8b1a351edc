// tests/e2e/finished_test.cpp: a run that is finished says so, whatever else is gone.
#include <gtest/gtest.h>

#include <csignal>
#include <fstream>

#include "tests/e2e/tiny_run.h"
#include "tests/faults/preload.h"

namespace weft::testing {
namespace {

namespace fs = std::filesystem;

void damage(const fs::path& file) {
  std::string bytes = slurp(file);
  bytes[bytes.size() / 2] = static_cast<char>(bytes[bytes.size() / 2] ^ 1);
  std::ofstream(file, std::ios::binary) << bytes;
}

// Neither the memory check nor a rank may ask for the model or the rows first.
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

// Its run.yaml says 8 steps; no event says that it was started.
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

TEST(Finished, DamagedCheckpointsAreNamedNotGone) {
  const TinyRun run;
  run.train_well({"checkpoint.keep=1"});
  damage(run.checkpoint(6) / "rank-00000.safetensors");
  const Ended same = run.train({"checkpoint.keep=1"});
  EXPECT_EQ(same.exit_code, 0) << same.err;
  expect_parts(same.err, {"warning: ", "step-00000006", "is finished at step 6"});
  const Ended further = run.train({"checkpoint.keep=1", "train.steps=8"});
  EXPECT_EQ(further.exit_code, 2) << further.err;
  expect_parts(further.err, {"none of its checkpoints is sound", "step-00000006", "damaged",
                             "train.steps: 6 -> 8"});
  EXPECT_FALSE(contains(further.err, "are gone")) << further.err;
}

// With the last one damaged the steps after the one before it are made again.
TEST(Finished, ADamagedLastCheckpointIsMadeAgain) {
  const TinyRun run;
  run.train_well();
  const std::string hash = hash_of(run.dir());
  damage(run.checkpoint(6) / "rank-00000.safetensors");
  run.train_well();
  EXPECT_EQ(hash_of(run.dir()), hash);
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
  const Ended ended = run_to_end(run.words("train", {"parallel.dp=2"}), options);
  EXPECT_EQ(ended.exit_code, 75) << ended.err;
  const auto events = event_lines(run.dir(), "rank failed");
  ASSERT_EQ(events.size(), 1u) << ended.err;
  expect_parts(events[0].at("message").as_string(), {"SIGKILL"});
}

}  // namespace
}  // namespace weft::testing
