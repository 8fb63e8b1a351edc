// tests/e2e/before_training_test.cpp: what would prevent a run from finishing is detected at its
// start.
#include <gtest/gtest.h>

#include <sstream>

#include "tests/e2e/tiny_run.h"
#include "tests/faults/preload.h"

namespace weft::testing {
namespace {

namespace fs = std::filesystem;

int64_t num_tiny_steps(const TinyRun& run) {
  return static_cast<int64_t>(metric_texts(run.dir(), "loss").size());
}

// Checkpoints need space; users want final/.
TEST(BeforeTraining, AFinishedRunWithoutCheckpointsIsFinished) {
  for (const char* dp : {"parallel.dp=1", "parallel.dp=2"}) {
    const TinyRun run;
    run.train_well({dp});
    fs::remove_all(run.dir() / "checkpoints");
    const std::string model = hash_of(run.dir() / "final"),
                      metrics = slurp(run.dir() / "metrics.jsonl"),
                      events = slurp(run.dir() / "events.jsonl");
    const auto expect_untouched = [&] {
      EXPECT_TRUE(hash_of(run.dir() / "final") == model);
      EXPECT_EQ(slurp(run.dir() / "metrics.jsonl"), metrics);
      EXPECT_TRUE(slurp(run.dir() / "events.jsonl").starts_with(events));
      EXPECT_FALSE(fs::exists(run.dir() / "checkpoints"));
    };
    const Ended same = run.train({dp});
    EXPECT_EQ(same.exit_code, 0) << same.err;
    expect_parts(same.err, {"is finished at step 6"});
    expect_untouched();
    for (const char* change : {"train.steps=8", "train.lr=0.5"}) {
      const Ended other = run.train({dp, change});
      EXPECT_EQ(other.exit_code, 2) << other.err;
      expect_parts(other.err, {"its checkpoints are gone", "--overwrite", "name=NEW",
                               "model.path=" + (run.dir() / "final").string()});
      expect_untouched();
    }
    const Ended never = run.train({dp}, {"--resume", "never"});
    EXPECT_EQ(never.exit_code, 2) << never.err;
    expect_untouched();
  }
}

TEST(BeforeTraining, AForeignFinalIsRejected) {
  const TinyRun run;
  fs::create_directories(run.dir() / "final");
  run.write("runs/tiny/final/thesis.txt", "years of work");
  for (const std::vector<std::string>& more :
       {std::vector<std::string>{}, std::vector<std::string>{"--overwrite"}}) {
    const Ended ended = run.train({}, more);
    EXPECT_EQ(ended.exit_code, 2) << ended.err;
    expect_parts(ended.err, {(run.dir() / "final").string(), "would replace it", "move it away"});
    EXPECT_EQ(slurp(run.dir() / "final/thesis.txt"), "years of work");
    EXPECT_EQ(num_tiny_steps(run), 0);
  }
  // Somebody's model, in a folder that was never a run's.
  run.write("runs/tiny/final/config.json", "{}");
  run.write("runs/tiny/final/model.safetensors", "theirs");
  EXPECT_EQ(run.train().exit_code, 2);
  EXPECT_EQ(slurp(run.dir() / "final/model.safetensors"), "theirs");
  fs::remove_all(run.dir() / "final");
  fs::create_directories(run.dir() / "final");  // empty: nothing to lose
  run.train_well();
  EXPECT_TRUE(fs::exists(run.dir() / "final/config.json"));
}

TEST(BeforeTraining, AnInvalidGenerationConfigIsRefused) {
  const TinyRun run;
  for (const char* text : {"{\"eos_token_id\": 2", "[1]", "{\"eos_token_id\": \"x\"}"}) {
    run.write("model/generation_config.json", text);
    const Ended ended = run.train();
    EXPECT_EQ(ended.exit_code, 2) << text << ended.err;
    expect_parts(ended.err, {"generation_config.json"});
    EXPECT_FALSE(fs::exists(run.dir())) << text;
  }
}

TEST(BeforeTraining, APictureThatCannotBeWrittenIsAWarning) {
  const TinyRun run;
  fs::create_directories(run.dir() / "loss.png");
  const Ended ended = run.train();
  EXPECT_EQ(ended.exit_code, 0) << ended.err;
  expect_parts(ended.err, {"finished step 6", "warning: the loss curve could not be drawn"});
  EXPECT_EQ(event_lines(run.dir(), "finished").size(), 1u);
  StartOptions options;
  options.env = fault_env("open:EACCES:loss.svg");
  fs::remove_all(run.dir() / "loss.png");
  const Ended refused = run_to_end(run.words("train", {"train.steps=8"}), options);
  EXPECT_EQ(refused.exit_code, 0) << refused.err;
  expect_parts(refused.err, {"warning: the loss curve could not be drawn", "loss.svg"});
}

TEST(BeforeTraining, UnwritableStorageIsReportedBeforeLoading) {
  const TinyRun run;
  StartOptions options;
  options.env = fault_env("mkdir:EROFS:runs");
  const Ended fresh = run_to_end(run.words("train", {}), options);
  EXPECT_EQ(fresh.exit_code, 2) << fresh.err;
  expect_parts(fresh.err, {"cannot write into", "Read-only file system", "storage", "--run-dir"});
  run.train_well();
  // A finished run can be reported; one that must continue cannot.
  options.env = fault_env("open:EROFS:tiny/.lock");
  const Ended finished = run_to_end(run.words("train", {}), options);
  EXPECT_EQ(finished.exit_code, 0) << finished.err;
  const Ended more = run_to_end(run.words("train", {"train.steps=8"}), options);
  EXPECT_EQ(more.exit_code, 2) << more.err;
  expect_parts(more.err, {"cannot write into", "Read-only file system"});
  EXPECT_EQ(num_tiny_steps(run), 6);
}

TEST(BeforeTraining, NamesThatAreNotFoldersAreRejected) {
  const TinyRun run;
  const std::string longest(300, 'n');
  for (const auto& [name, words] : std::vector<std::pair<std::string, std::string>>{
           {longest, "has 300 bytes"}, {"two\nlines", "line end"}, {"bell\a", "control"}}) {
    const Ended ended = run.train({"name=" + name});
    EXPECT_EQ(ended.exit_code, 2) << ended.err;
    expect_parts(ended.err, {"name \"", words});
  }
  const Ended deep = run.train({}, {"--run-dir", (run / longest).string()});
  EXPECT_EQ(deep.exit_code, 2) << deep.err;
  expect_parts(deep.err, {"File name too long"});
  EXPECT_FALSE(fs::exists(run / "runs"));
}

TEST(BeforeTraining, FoldersOfControlCharactersAreRefused) {
  const TinyRun run;
  for (const std::string name : {"two\nlines", "bell\a", "no\xff"}) {
    const std::string folder = (run / name).string();
    for (const Ended& ended :
         {run.train({}, {"--run-dir", folder}), run.train({"storage=\"" + folder + "\""})}) {
      EXPECT_EQ(ended.exit_code, 2) << ended.err;
      expect_parts(ended.err, {name == "no\xff" ? "UTF-8" : "has a line end, a control"});
    }
    EXPECT_FALSE(fs::exists(folder));
  }
}

// Foreign names must not create lines, nor control the terminal.
TEST(BeforeTraining, PathsInMessagesStayOnOneLine) {
  const TinyRun run;
  const std::string odd = (run / "a\nb\x1b[31m").string(), shown = "a\\x0ab\\x1b[31m";
  fs::create_directory(odd);
  for (const auto& words :
       {std::vector<std::string>{"inspect", odd + "/nosuch.txt"},
        std::vector<std::string>{"hash", odd}, std::vector<std::string>{"train", odd + "/run.yaml"},
        run.words("train", {"data.train=[\"" + (run / "a\\nb\\x1b[31m").string() + "\"]"}),
        run.words("eval", {"data.eval=[" + (run / "eval.txt").string() + "]"}, {"--model", odd})}) {
    const Ended ended = run_to_end(words);
    EXPECT_EQ(ended.exit_code, 2) << words[0] << ended.err;
    expect_parts(ended.err, {shown});
    std::istringstream lines(ended.err);
    for (std::string line; std::getline(lines, line);) {
      EXPECT_TRUE(line.starts_with("error: ") || line.starts_with("  ")) << ended.err;
      EXPECT_EQ(line.find('\x1b'), std::string::npos) << line;
    }
  }
}

}  // namespace
}  // namespace weft::testing
