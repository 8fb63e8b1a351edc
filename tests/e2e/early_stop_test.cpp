// tests/e2e/early_stop_test.cpp: a run that train.early_stop ends, its final model, and later
// starts.
#include <gtest/gtest.h>

#include <filesystem>

#include "tests/e2e/tiny_run.h"
#include "tests/faults/preload.h"

namespace weft::testing {
namespace {

namespace fs = std::filesystem;
using Sets = std::vector<std::string>;

// A rate of 0 makes no progress: the first evaluation is the best, and two more end the run at 3.
Sets stalling(const TinyRun& run, const Sets& more = {}) {
  Sets sets = {"data.eval=" + (run / "eval.txt").string(), "train.eval_every=1",
               "train.early_stop=2", "train.lr=0", "train.steps=20"};
  sets.insert(sets.end(), more.begin(), more.end());
  return sets;
}

Json state_of(const fs::path& checkpoint) {
  return parse_json(slurp(checkpoint / "state.json"), "state.json");
}

TEST(EarlyStop, EndsWithTheBestModelAndStaysFinished) {
  for (const char* layout : {"parallel.dp=1", "parallel.dp=2"}) {
    const TinyRun run;
    const Ended ended = run.train(stalling(run, {layout}));
    ASSERT_EQ(ended.exit_code, 0) << ended.err;
    expect_parts(ended.err, {"stopped early: 2 evaluations", "eval_loss", "step 1"});
    const std::vector<Json> finished = event_lines(run.dir(), "finished");
    ASSERT_EQ(finished.size(), 1u);
    EXPECT_EQ(finished[0].at("reason").as_string(), "early_stop");
    EXPECT_EQ(finished[0].at("step").as_int(), 3);
    EXPECT_EQ(finished[0].at("best_step").as_int(), 1);
    EXPECT_EQ(state_of(run.checkpoint(3)).at("evals_without_progress").as_int(), 2);
    EXPECT_EQ(metric_texts(run.dir(), "loss").size(), 3u);
    const auto before = bytes_below(run.dir());
    for (const char* more : {"checkpoint.keep=3", "train.log_every=2", "train.steps=40"}) {
      const Ended again = run.train(stalling(run, {layout, more}));
      EXPECT_EQ(again.exit_code, 0) << again.err;
      expect_parts(again.err, {"is finished at step 3", "train.early_stop"});
    }
    EXPECT_EQ(bytes_below(run.dir()), before);
  }
}

// The loss of these rows rises after a while at this rate: final/ is the model before that.
TEST(EarlyStop, FinalIsTheBestNotTheLast) {
  const TinyRun run;
  const Sets sets = {"data.eval=" + (run / "eval.txt").string(),
                     "train.eval_every=2",
                     "train.early_stop=2",
                     "train.lr=0.5",
                     "train.steps=200",
                     "checkpoint.every=2"};
  run.train_well(sets);
  const Json finished = event_lines(run.dir(), "finished").at(0);
  EXPECT_EQ(finished.at("reason").as_string(), "early_stop");
  EXPECT_EQ(finished.at("best_step").as_int() + 4, finished.at("step").as_int());
  const fs::path last = run.checkpoint(finished.at("step").as_int());
  EXPECT_EQ(weights_of(run.dir() / "final"), weights_of(run.dir() / "checkpoints/best"));
  EXPECT_NE(weights_of(run.dir() / "final"), weights_of(last));
}

// The newest checkpoint is not the model in final/: whoever reads it is told.
TEST(EarlyStop, TheRunDirectoryIsNotItsBestModel) {
  const TinyRun run;
  run.train_well(stalling(run));
  const std::string dir = run.dir().string(), final = dir + "/final";
  const auto err_of = [&](const std::string& model, const std::string& out) {
    return run_to_end({"generate", model, "--prompt", "a", "--max-new-tokens=1"}).err +
           run_to_end({"export", model, (run / out).string()}).err;
  };
  const std::string warning = dir + " ended early: this is its last step; ";
  const std::string told = err_of(dir, "one");
  const size_t first = told.find(warning + final + " is the best model");
  ASSERT_NE(first, std::string::npos) << told;
  EXPECT_NE(told.find(warning, first + 1), std::string::npos) << told;
  EXPECT_EQ(err_of(final, "two").find("ended early"), std::string::npos);
  EXPECT_EQ(err_of(run.checkpoint(3).string(), "three").find("ended early"), std::string::npos);
  expect_parts(run_to_end(run.words("eval", stalling(run))).err, {warning + "--model " + final});
}

TEST(EarlyStop, MoreOfItContinues) {
  const TinyRun run;
  run.train_well(stalling(run));
  run.train_well(stalling(run, {"train.early_stop=4"}));
  EXPECT_EQ(metric_texts(run.dir(), "loss").size(), 5u);
  EXPECT_EQ(event_lines(run.dir(), "finished").at(1).at("evals_without_progress").as_int(), 4);
  run.train_well(stalling(run, {"train.early_stop=0", "train.steps=8"}));  // off
  EXPECT_EQ(metric_texts(run.dir(), "loss").size(), 8u);
  EXPECT_FALSE(event_lines(run.dir(), "finished").at(2).find("reason"));
}

// A start with a larger number stored its run.yaml and failed before its first event.
TEST(EarlyStop, AFailedStartFinishesNothing) {
  const TinyRun run;
  run.train_well(stalling(run));
  StartOptions options;
  options.env = fault_env("write:ENOSPC:events.jsonl");
  const Sets more = stalling(run, {"train.early_stop=3"});
  EXPECT_EQ(run_to_end(run.words("train", more), options).exit_code, 1);
  run.train_well(more);
  EXPECT_EQ(metric_texts(run.dir(), "loss").size(), 4u);
}

// Killed after the last checkpoint: the same command writes what is missing, and trains nothing.
TEST(EarlyStop, AMissingFinalIsWrittenWithoutTraining) {
  const TinyRun run;
  run.train_well(stalling(run));
  const auto model = bytes_below(run.dir() / "final");
  const std::vector<std::string> losses = metric_texts(run.dir(), "loss");
  fs::remove_all(run.dir() / "final");
  run.train_well(stalling(run));
  EXPECT_EQ(bytes_below(run.dir() / "final"), model);
  EXPECT_EQ(metric_texts(run.dir(), "loss"), losses);
  fs::remove_all(run.dir() / "final");
  fs::remove_all(run.dir() / "checkpoints/best");
  const Ended lost = run.train(stalling(run));
  EXPECT_EQ(lost.exit_code, 1) << lost.err;
  expect_parts(lost.err, {"checkpoints/best is gone or damaged", "no final/"});
}

// Interrupted anywhere, the count goes on where it was.
TEST(EarlyStop, TheCountIsResumed) {
  const TinyRun run;
  run.train_well(stalling(run, {"train.steps=2"}));  // an end by steps
  EXPECT_EQ(state_of(run.checkpoint(2)).at("evals_without_progress").as_int(), 1);
  EXPECT_FALSE(event_lines(run.dir(), "finished").at(0).find("reason"));
  run.train_well(stalling(run));
  EXPECT_EQ(event_lines(run.dir(), "finished").at(1).at("step").as_int(), 3);
}

TEST(EarlyStop, IsFinishedWithoutItsCheckpoints) {
  const TinyRun run;
  run.train_well(stalling(run));
  for (const int64_t step : {2, 3}) fs::remove_all(run.checkpoint(step));
  const Ended same = run.train(stalling(run, {"train.log_every=2"}));
  EXPECT_EQ(same.exit_code, 0) << same.err;
  expect_parts(same.err, {"is finished at step 3"});
  const Ended more = run.train(stalling(run, {"train.early_stop=5"}));
  EXPECT_EQ(more.exit_code, 2) << more.err;
  expect_parts(more.err, {"is finished at step 3", "train.early_stop: 2 -> 5"});
}

// Another measure has no best yet, and counts from its own.
TEST(EarlyStop, TheMeasureMayChange) {
  const TinyRun run;
  run.write("pairs.jsonl", "{\"q\": \"one \", \"a\": \"1\"}\n{\"q\": \"two \", \"a\": \"2\"}\n");
  const std::string file = (run / "pairs.jsonl").string();
  const Sets keys = {"data.train=" + file, "data.eval=" + file,    "data.source={q}",
                     "data.target={a}",    "train.global_batch=2", "train.eval_every=1",
                     "train.lr=0",         "eval.generate=2",      "train.early_stop=3"};
  Sets first = keys, second = keys;
  first.emplace_back("train.steps=3");
  run.train_well(first);
  EXPECT_EQ(state_of(run.checkpoint(3)).at("evals_without_progress").as_int(), 2);
  second.insert(second.end(), {"checkpoint.best=exact_match", "train.steps=20"});
  run.train_well(second);
  const Json finished = event_lines(run.dir(), "finished").at(1);
  EXPECT_EQ(finished.at("best_step").as_int(), 4);
  EXPECT_EQ(finished.at("step").as_int(), 7);
  EXPECT_EQ(state_of(run.checkpoint(7)).at("best_exact_match").as_number(), 0);
}

// No answer ever ends, so all matches are 0: the loss decides, also after a resume, while the count
// is that of the match.
TEST(EarlyStop, OfEqualMatchesTheLowestLossIsTheBest) {
  const TinyRun run;
  run.write("pairs.jsonl", "{\"q\": \"one \", \"a\": \"1\"}\n{\"q\": \"two \", \"a\": \"2\"}\n");
  const std::string file = (run / "pairs.jsonl").string();
  const auto train = [&](const Sets& more) {
    Sets sets = {"data.train=" + file, "data.eval=" + file,     "data.source={q}",
                 "data.target={a}",    "train.global_batch=2",  "train.eval_every=1",
                 "eval.generate=2",    "eval.max_new_tokens=1", "checkpoint.best=exact_match",
                 "train.early_stop=5"};
    sets.insert(sets.end(), more.begin(), more.end());
    run.train_well(sets);
  };
  const auto best = [&] { return state_of(run.dir() / "checkpoints/best"); };
  train({"train.lr=1e-3", "train.steps=3"});
  EXPECT_EQ(best().at("step").as_int(), 3);
  EXPECT_EQ(best().at("best_exact_match").as_number(), 0);
  const std::string loss = metric_texts(run.dir(), "eval_loss").at(2);
  EXPECT_NEAR(best().at("eval_loss_of_best").as_number(), std::stod(loss), 1e-4);
  EXPECT_EQ(best().at("evals_without_progress").as_int(), 2);
  train({"train.lr=0", "train.steps=20"});  // the loss stays
  EXPECT_EQ(best().at("step").as_int(), 3);
  const Json finished = event_lines(run.dir(), "finished").at(1);
  EXPECT_EQ(finished.at("step").as_int(), 6);
  EXPECT_EQ(finished.at("best_step").as_int(), 3);
}

}  // namespace
}  // namespace weft::testing
