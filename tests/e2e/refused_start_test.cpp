// tests/e2e/refused_start_test.cpp: a rejected start has written nothing, and reports why.
#include <gtest/gtest.h>

#include <fstream>

#include "tests/e2e/tiny_run.h"

namespace weft::testing {
namespace {

namespace fs = std::filesystem;

// The run uses the tokenizer in final/ of another run; the tokenizer changes before the resume.
TEST(RefusedStart, AnotherTokenizerThanTheCheckpoints) {
  const TinyRun run;
  run.train_well({"name=first", "train.steps=0"});
  const fs::path file = run.dir("first") / "final/tokenizer.json";
  const std::vector<std::string> sets = {"data.tokenizer=" + file.parent_path().string()};
  run.train_well(sets);
  std::ofstream(file, std::ios::app) << "\n";
  const Ended ended = run.train(with(sets, {"train.steps=8"}));
  EXPECT_EQ(ended.exit_code, 2) << ended.err;
  expect_parts(ended.err,
               {"the tokenizer file tokenizer.json differs from ", run.checkpoint(6).string()});
}

TEST(RefusedStart, ADamagedLineOfMetricsChangesNothing) {
  for (const char* damage : {"{\"step\": oops", "{\"step\": \"two\"", "[2"}) {
    const TinyRun run;
    run.train_well();
    std::string metrics = slurp(run.dir() / "metrics.jsonl");
    const std::string second = "{\"step\": 2";
    run.write("runs/tiny/metrics.jsonl",
              metrics.replace(metrics.find(second), second.size(), damage));
    const auto before = bytes_below(run.dir());
    for (const char* dp : {"parallel.dp=1", "parallel.dp=2"}) {
      const Ended refused = run.train({"train.steps=8", "train.lr=0.5", dp});
      EXPECT_EQ(refused.exit_code, 2) << refused.err;
      expect_parts(refused.err, {"metrics.jsonl:2", "delete line 2",
                                 "(sed -i 2d " + (run.dir() / "metrics.jsonl").string() + ")",
                                 "move the file away"});
      EXPECT_EQ(bytes_below(run.dir()), before) << dp;
    }
    // What the hint says helps.
    fs::remove(run.dir() / "metrics.jsonl");
    run.train_well({"train.steps=8"});
    EXPECT_EQ(metric_texts(run.dir(), "step"), (std::vector<std::string>{"7", "8"}));
  }
}

TEST(RefusedStart, EnvironmentVariablesAreCheckedFirst) {
  const TinyRun run;
  StartOptions options;
  options.env["WEFT_TENSOR_HASHES"] = "yes";
  const Ended refused = run_to_end(run.words("train", {}), options);
  EXPECT_EQ(refused.exit_code, 2) << refused.err;
  expect_parts(refused.err, {"WEFT_TENSOR_HASHES is \"yes\"", "wanted: 1, start or all"});
  EXPECT_FALSE(fs::exists(run.dir()));
}

TEST(RefusedStart, ALostRunYamlIsNamedAndItsKeysAreStillCompared) {
  const TinyRun run;
  run.train_well();
  const std::string stored = slurp(run.dir() / "run.yaml");
  const std::string cut = stored.substr(0, stored.find("\ntrain:") + 1);
  int64_t steps = 6;
  for (const std::string& text : {std::string(), cut, stored.substr(0, stored.size() - 1)}) {
    run.write("runs/tiny/run.yaml", text);
    if (text.empty()) fs::remove(run.dir() / "run.yaml");
    const auto before = bytes_below(run.dir());
    const Ended other = run.train({"train.steps=30", "seed=9"});
    EXPECT_EQ(other.exit_code, 2) << other.err;
    expect_parts(other.err, {"was trained with other keys", "seed: 7 -> 9"});
    EXPECT_FALSE(contains(other.err, "holds another run")) << other.err;
    const Ended same = run.train({"train.steps=" + std::to_string(steps)});
    EXPECT_EQ(same.exit_code, 0) << same.err;
    expect_parts(same.err, {"run.yaml is missing or truncated", "is finished at step"});
    EXPECT_EQ(bytes_below(run.dir()), before);
    const Ended more = run.train({"train.steps=" + std::to_string(++steps)});
    EXPECT_EQ(more.exit_code, 0) << more.err;
    expect_parts(more.err, {"train.steps: " + std::to_string(steps - 1) + " -> "});
    expect_parts(slurp(run.dir() / "run.yaml"), {"track:", "steps: " + std::to_string(steps)});
  }
}

// Nothing is left to compare with: the final model is not attributed to another run, nor replaced.
TEST(RefusedStart, ALostRunYamlOfAFinishedRunWithoutCheckpoints) {
  const TinyRun run;
  run.train_well();
  fs::remove_all(run.dir() / "checkpoints");
  fs::remove(run.dir() / "run.yaml");
  const auto before = bytes_below(run.dir());
  const Ended refused = run.train();
  EXPECT_EQ(refused.exit_code, 2) << refused.err;
  expect_parts(refused.err, {"is finished at step 6", "run.yaml is missing or truncated",
                             "restore run.yaml", "name=NEW"});
  EXPECT_EQ(bytes_below(run.dir()), before);
}

TEST(RefusedStart, AnEndBeforeTheCheckpointIsRefused) {
  const TinyRun run;
  run.train_well();
  const auto refuse = [&](const char* set, const std::vector<std::string>& parts) {
    const auto before = bytes_below(run.dir());
    const Ended refused = run.train({set});
    EXPECT_EQ(refused.exit_code, 2) << refused.err;
    expect_parts(refused.err, parts);
    EXPECT_EQ(bytes_below(run.dir()), before);
  };
  const std::vector<std::string> parts = {"train.steps is 4, but the run is at step 6",
                                          "train.steps=6 ends it there", "--resume PATH"};
  refuse("train.steps=4", parts);
  fs::remove_all(run.dir() / "final");  // stopped, not finished
  refuse("train.steps=4", parts);
  run.train_well({"train.steps=6"});
  run.train_well({"train.steps=4"}, {"--resume", run.checkpoint(4).string()});
}

TEST(RefusedStart, EpochsBeforeTheCheckpointAreRefused) {
  const TinyRun run;
  const std::string file = slurp(run.file());
  run.write("run.yaml", std::string(file).replace(file.find("steps: 6"), 8, "epochs: 3"));
  run.train_well({"checkpoint.every=1", "checkpoint.keep=20"});  // five steps per epoch
  const std::vector<std::string> keep = {"checkpoint.every=1", "checkpoint.keep=20"};
  const auto with = [&](const char* epochs) {
    return std::vector<std::string>{keep[0], keep[1], epochs};
  };
  const Ended refused = run.train(with("train.epochs=1"));
  EXPECT_EQ(refused.exit_code, 2) << refused.err;
  expect_parts(refused.err, {"train.epochs is 1, but the run is in epoch "});
  // In the middle of an epoch that would not be; at its end.
  EXPECT_EQ(run.train(with("train.epochs=2"), {"--resume", run.checkpoint(11).string()}).exit_code,
            2);
  run.train_well(with("train.epochs=2"), {"--resume", run.checkpoint(10).string()});
}

TEST(RefusedStart, AUsersRunFileIsNeverReplaced) {
  const TinyRun run;
  const std::string theirs = slurp(run.file()), here = (run / ".").string();
  for (const std::vector<std::string>& more :
       {std::vector<std::string>{"--run-dir", here},
        std::vector<std::string>{"--run-dir", here, "--overwrite"},
        std::vector<std::string>{"--run-dir", here, "--resume", "never"}}) {
    const Ended refused = run.train({}, more);
    EXPECT_EQ(refused.exit_code, 2) << refused.err;
    expect_parts(refused.err, {"run.yaml", "would replace it", "--run-dir"});
    EXPECT_EQ(slurp(run.file()), theirs);
  }
  EXPECT_FALSE(fs::exists(run / "events.jsonl"));
  // One made of a resolved file, and given on the command line, is theirs too.
  run.train_well();
  fs::create_directory(run / "copy");
  const std::string edited = "# mine\n" + slurp(run.dir() / "run.yaml");
  run.write("copy/run.yaml", edited);
  const Ended given =
      run_to_end({"train", (run / "copy/run.yaml").string(), "--run-dir", (run / "copy").string()});
  EXPECT_EQ(given.exit_code, 2) << given.err;
  expect_parts(given.err, {"is the run file of this command", "would replace it"});
  EXPECT_EQ(slurp(run / "copy/run.yaml"), edited);
  // Also in a run's directory, with weft's events and checkpoints next to it.
  run.write("runs/tiny/run.yaml", theirs);
  for (const char* word : {"--quiet", "--overwrite"}) {
    const Ended beside = run.train({"train.steps=8"}, {word});
    EXPECT_EQ(beside.exit_code, 2) << beside.err;
    EXPECT_EQ(slurp(run.dir() / "run.yaml"), theirs);
  }
}

// The stored file is a run file itself; edited, its keys are compared with the checkpoint's.
TEST(RefusedStart, TheStoredRunYamlResumesUnlessItsTrainingWasEdited) {
  const TinyRun run;
  run.train_well();
  const fs::path stored = run.dir() / "run.yaml";
  const Ended more = run_to_end({"train", stored.string(), "--set", "train.steps=8"});
  EXPECT_EQ(more.exit_code, 0) << more.err;
  std::string text = slurp(stored);
  const size_t at = text.find("seed: 7");
  ASSERT_NE(at, std::string::npos);
  run.write("runs/tiny/run.yaml", text.replace(at, 7, "seed: 8"));
  const auto before = bytes_below(run.dir());
  const Ended edited = run_to_end({"train", stored.string(), "--set", "train.steps=10"});
  EXPECT_EQ(edited.exit_code, 2) << edited.err;
  expect_parts(edited.err, {"was trained with other keys", "seed: 7 -> 8"});
  EXPECT_EQ(bytes_below(run.dir()), before);
}

}  // namespace
}  // namespace weft::testing
