// tests/e2e/overwrite_test.cpp: --overwrite deletes what a run wrote, and nothing else.
#include <gtest/gtest.h>

#include <csignal>

#include "tests/e2e/tiny_run.h"
#include "tests/faults/preload.h"

namespace weft::testing {
namespace {

namespace fs = std::filesystem;

TEST(Overwrite, FoldersOfAnotherProgramStay) {
  const TinyRun run;
  for (const char* name : {"checkpoints", "log"}) {
    fs::create_directories(run / "project" / name);
    run.write(std::string("project/") + name + "/theirs.bin", "of another program");
  }
  const std::vector<std::string> words = {"--run-dir", (run / "project").string(), "--overwrite"};
  Ended refused = run.train({}, words);
  EXPECT_EQ(refused.exit_code, 2) << refused.err;
  expect_parts(refused.err, {"holds no weft run: ", "would delete checkpoints, log", "--run-dir"});
  // A user's run file does not mark a run.
  run.write("project/run.yaml", slurp(run.file()));
  refused = run.train({}, words);
  EXPECT_EQ(refused.exit_code, 2) << refused.err;
  EXPECT_EQ(slurp(run / "project/checkpoints/theirs.bin"), "of another program");
  EXPECT_EQ(slurp(run / "project/log/theirs.bin"), "of another program");
  EXPECT_EQ(slurp(run / "project/run.yaml"), slurp(run.file()));
  // Nor do they become the run's when one is started next to them.
  fs::remove(run / "project/run.yaml");
  run.train_well({}, {"--run-dir", (run / "project").string()});
  refused = run.train({}, words);
  EXPECT_EQ(refused.exit_code, 2) << refused.err;
  expect_parts(refused.err, {"would delete checkpoints/theirs.bin, log/theirs.bin in "});
  EXPECT_EQ(slurp(run / "project/checkpoints/theirs.bin"), "of another program");
}

TEST(Overwrite, AnEmptyFolderAndARunsFolderAreOverwritten) {
  const TinyRun run;
  fs::create_directories(run.dir() / "checkpoints");  // a start that was killed at once
  run.write("runs/tiny/mine.txt", "kept");
  run.train_well({}, {"--overwrite"});
  run.train_well({"seed=9"}, {"--overwrite"});
  fs::remove(run.dir() / "events.jsonl");
  run.train_well({"seed=10"}, {"--overwrite"});
  EXPECT_EQ(slurp(run.dir() / "mine.txt"), "kept");
  EXPECT_EQ(event_lines(run.dir(), "started").size(), 1u);
}

TEST(Overwrite, AnInterruptedDeletionIsFinished) {
  const TinyRun run;
  run.train_well();
  StartOptions options;
  options.env = fault_env("unlink:KILL:checkpoints.removing/");
  const Ended killed = run_to_end(run.words("train", {}, {"--overwrite"}), options);
  EXPECT_EQ(killed.signal, SIGKILL) << killed.err;
  ASSERT_TRUE(fs::exists(run.dir() / "checkpoints.removing"));
  fs::create_directories(run.dir() / "final.removing");
  fs::remove_all(run.dir() / "final");  // nothing that a start from another run would replace
  run.train_well({"name=other"});
  run.train_well({"train.steps=8"}, {"--resume", run.checkpoint(6, "other").string()});
  EXPECT_FALSE(fs::exists(run.dir() / "checkpoints.removing"));
  EXPECT_FALSE(fs::exists(run.dir() / "final.removing"));
}

}  // namespace
}  // namespace weft::testing
