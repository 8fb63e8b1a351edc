// tests/e2e/other_run_test.cpp: --resume PATH: another run's checkpoint, a run directory, a model.
#include <fmt/core.h>
#include <gtest/gtest.h>

#include <csignal>

#include "tests/e2e/tiny_run.h"
#include "tests/faults/preload.h"

namespace weft::testing {
namespace {

namespace fs = std::filesystem;

// The run's own work would be replaced by the other's.
TEST(OtherRun, DoesNotReplaceWorkOfThisOne) {
  const TinyRun run;
  run.train_well({"name=other", "train.steps=4"});
  run.train_well({"train.steps=2"});
  const std::vector<std::string> from = {"--resume", run.checkpoint(4, "other").string()};
  const auto before = bytes_below(run.dir());
  for (const char* dp : {"parallel.dp=1", "parallel.dp=2"}) {
    const Ended refused = run.train({dp}, from);
    EXPECT_EQ(refused.exit_code, 2) << refused.err;
    expect_parts(refused.err, {"is a checkpoint of another run", "checkpoints/step-00000002",
                               "final/", "--set name=NEW", "--overwrite"});
  }
  EXPECT_EQ(bytes_below(run.dir()), before);
  fs::remove_all(run.dir() / "checkpoints");  // final/ alone
  EXPECT_EQ(run.train({}, from).exit_code, 2);
  EXPECT_TRUE(fs::exists(run.dir() / "final/config.json"));
  const Ended given_up = run.train({"train.log_every=3"}, {from[0], from[1], "--overwrite"});
  EXPECT_EQ(given_up.exit_code, 0) << given_up.err;
  expect_parts(given_up.err, {"different from the checkpoint's run: name: other -> tiny",
                              "different from the checkpoint's run: train.log_every: "});
  run.train_well({"name=whole"});
  EXPECT_EQ(hash_of(run.dir()), hash_of(run.dir("whole")));
  EXPECT_EQ(metric_texts(run.dir(), "step"), (std::vector<std::string>{"5", "6"}));
}

// A link in checkpoints/ to another disk belongs to this run.
TEST(OtherRun, ALinkedCheckpointIsOwn) {
  const TinyRun run;
  run.train_well();
  fs::rename(run.checkpoint(4), run / "elsewhere");
  fs::create_directory_symlink(run / "elsewhere", run.checkpoint(4));
  run.train_well({}, {"--resume", run.checkpoint(4).string()});
  EXPECT_EQ(metric_texts(run.dir(), "loss").size(), 6u);
}

TEST(OtherRun, KeysAreComparedWithTheRecordOfTheCheckpoint) {
  const TinyRun run;
  run.train_well({"name=other"});
  run.write("more.txt", slurp(run / "train.txt"));
  const std::vector<std::string> from = {"--resume", run.checkpoint(4, "other").string()};
  for (const std::string& set : {std::string("seed=8"), std::string("train.global_batch=4"),
                                 "data.train=[" + (run / "more.txt").string() + "]"}) {
    const Ended refused = run.train({set}, from);
    EXPECT_EQ(refused.exit_code, 2) << set << refused.err;
    expect_parts(refused.err, {run.checkpoint(4, "other").string(), "was trained with other keys",
                               set.substr(0, set.find('=')) + ": ", "as they were", "weft export"});
    EXPECT_FALSE(fs::exists(run.dir())) << set;
  }
}

// Lines of a start that died before its first checkpoint are not the history of the other's steps;
// nor is the other's best loss this run's.
TEST(OtherRun, NothingOfItsMetricsIsShown) {
  const TinyRun run;
  const std::string eval = "data.eval=[" + (run / "eval.txt").string() + "]";
  run.train_well({"name=other", eval, "train.eval_every=2"});
  run.train_well({eval, "train.eval_every=2"});
  for (const char* name : {"checkpoints", "final", "events.jsonl"})
    fs::remove_all(run.dir() / name);
  const Ended ended = run.train({eval, "train.eval_every=1", "train.lr=1e-9"},
                                {"--resume", run.checkpoint(4, "other").string()});
  EXPECT_EQ(ended.exit_code, 0) << ended.err;
  expect_parts(ended.err,
               {"different from the checkpoint's run: name: other -> tiny", "at step 4"});
  const std::vector<std::string> losses = metric_texts(run.dir(), "loss");
  ASSERT_EQ(losses.size(), 2u);
  const double least = std::min(std::stod(losses[0]), std::stod(losses[1]));
  expect_parts(ended.err, {fmt::format("best loss {:.5f}", least)});
  EXPECT_TRUE(contains(slurp(run.dir() / "metrics.jsonl.abandoned"), "{\"step\": 4"));
  // Its own first evaluation is its best so far, though it is no better than the other's.
  const std::string state = slurp(run.dir() / "checkpoints/best/state.json");
  EXPECT_GT(parse_json(state, "state.json").at("step").as_int(), 4);
}

// Killed before its first own checkpoint: the run does not silently restart at step 0.
TEST(OtherRun, AStartThatSavedNothingIsNotRestartedAtZero) {
  const TinyRun run;
  run.train_well({"name=other"});
  const std::vector<std::string> from = {"--resume", run.checkpoint(4, "other").string()};
  StartOptions options;
  options.env = fault_env("mkdir:KILL:tiny/checkpoints/step-00000006");
  EXPECT_EQ(run_to_end(run.words("train", {}, from), options).signal, SIGKILL);
  const auto before = bytes_below(run.dir());
  const Ended refused = run.train();
  EXPECT_EQ(refused.exit_code, 2) << refused.err;
  expect_parts(refused.err, {"resumed from " + from[1], "--resume " + from[1], "--resume never"});
  EXPECT_EQ(bytes_below(run.dir()), before);
  run.train_well({}, from);
  EXPECT_EQ(metric_texts(run.dir(), "step"), (std::vector<std::string>{"5", "6"}));
  EXPECT_EQ(hash_of(run.dir()), hash_of(run.dir("other")));
}

// Killed when it had saved its best alone: the same command says what to do, and that works.
TEST(OtherRun, AStartThatSavedItsBestContinuesFromIt) {
  const TinyRun run;
  const std::string eval = "data.eval=[" + (run / "eval.txt").string() + "]";
  run.train_well({"name=other", eval, "train.eval_every=2"});
  const std::vector<std::string> from = {"--resume", run.checkpoint(4, "other").string()};
  StartOptions options;
  options.env = fault_env("mkdir:KILL:tiny/checkpoints/step-00000006");
  const std::vector<std::string> sets = {eval, "train.eval_every=1"};
  EXPECT_EQ(run_to_end(run.words("train", sets, from), options).signal, SIGKILL);
  ASSERT_TRUE(fs::exists(run.dir() / "checkpoints/best"));
  const Ended refused = run.train(sets, from);
  EXPECT_EQ(refused.exit_code, 2) << refused.err;
  expect_parts(refused.err, {"checkpoints/best", "omit --resume"});
  const Ended ended = run.train(sets);
  EXPECT_EQ(ended.exit_code, 0) << ended.err;
  expect_parts(ended.err, {"the run resumes from that"});
}

TEST(OtherRun, ARunDirectoryMeansItsNewestSoundCheckpoint) {
  const TinyRun run;
  run.train_well({"name=other"});
  run.train_well({"name=whole", "train.steps=8"});
  const fs::path other = run.dir("other");
  flip_in_the_middle(run.checkpoint(6, "other") / "rank-00000.safetensors");
  const auto before = bytes_below(other);
  for (const std::string& path :
       {other.string(), other.string() + "/", (other / "checkpoints").string()}) {
    const Ended ended = run.train({"train.steps=8"}, {"--resume", path, "--overwrite"});
    EXPECT_EQ(ended.exit_code, 0) << ended.err;
    expect_parts(ended.err, {"its newest complete checkpoint is", "step-00000004", "skipped"});
    EXPECT_EQ(hash_of(run.dir()), hash_of(run.dir("whole")));
  }
  EXPECT_EQ(bytes_below(other), before);
  // Its own directory: as without --resume.
  const Ended own = run.train({"train.steps=9"}, {"--resume", run.dir().string()});
  EXPECT_EQ(own.exit_code, 0) << own.err;
  expect_parts(own.err, {"step-00000008", "at step 8"});
}

TEST(OtherRun, APathThatIsNotACheckpointHasAHint) {
  const TinyRun run;
  run.train_well({"name=other", "train.steps=2"});
  const std::string model = (run.dir("other") / "final").string();
  const Ended final_model = run.train({}, {"--resume", model});
  EXPECT_EQ(final_model.exit_code, 2);
  expect_parts(final_model.err, {"without the state of its training", "model.path=" + model});
  const Ended nothing = run.train({}, {"--resume", (run / "nothing").string()});
  EXPECT_EQ(nothing.exit_code, 2);
  expect_parts(nothing.err, {"no complete checkpoint", "RUN/checkpoints/step-N", "run directory"});
  fs::remove_all(run.checkpoint(2, "other"));
  const Ended none = run.train({}, {"--resume", run.dir("other").string()});
  EXPECT_EQ(none.exit_code, 2);
  expect_parts(none.err, {"no sound checkpoint"});
}

}  // namespace
}  // namespace weft::testing
