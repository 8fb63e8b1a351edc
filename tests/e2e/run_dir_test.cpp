// tests/e2e/run_dir_test.cpp: what a second start may change, and what a run leaves behind.
#include <gtest/gtest.h>

#include <cmath>
#include <sstream>

#include "tests/e2e/tiny_run.h"

namespace weft::testing {
namespace {

TEST(RunDir, ResumeNeverDiscardsNothing) {
  const TinyRun run;
  run.train_well();
  const std::string hash = hash_of(run.dir()), metrics = slurp(run.dir() / "metrics.jsonl");
  const Ended refused = run.train({}, {"--resume", "never"});
  EXPECT_EQ(refused.exit_code, 2);
  expect_parts(refused.err, {run.dir().string(), "has checkpoints", "--overwrite"});
  EXPECT_EQ(hash_of(run.dir()), hash);
  EXPECT_EQ(slurp(run.dir() / "metrics.jsonl"), metrics);
  run.write("runs/tiny/mine.txt", "kept");
  run.train_well({"seed=9"}, {"--resume", "never", "--overwrite"});
  EXPECT_NE(hash_of(run.dir()), hash);
  EXPECT_EQ(metric_texts(run.dir(), "loss").size(), 6u);
  EXPECT_EQ(event_lines(run.dir(), "started").size(), 1u);
  EXPECT_EQ(slurp(run.dir() / "mine.txt"), "kept");
}

TEST(RunDir, ResumeNeverRefusesAnotherRunWithoutCheckpoints) {
  const TinyRun run;
  run.train_well();
  for (const char* name : {"checkpoints", "final", "events.jsonl"})
    std::filesystem::remove_all(run.dir() / name);
  const std::string metrics = slurp(run.dir() / "metrics.jsonl");
  const Ended refused = run.train({"seed=9"}, {"--resume", "never"});
  EXPECT_EQ(refused.exit_code, 2);
  expect_parts(refused.err, {"holds another run", "seed: 7 -> 9", "--overwrite"});
  EXPECT_EQ(slurp(run.dir() / "metrics.jsonl"), metrics);
  run.train_well({}, {"--resume", "never"});
  EXPECT_EQ(metric_texts(run.dir(), "loss").size(), 6u);
}

TEST(RunDir, OverwriteRemovesThePicturesToo) {
  const TinyRun run;
  run.train_well();
  for (const char* name : {"loss.png", "loss.svg"}) {
    run.write(std::string("runs/tiny/") + name, "of the old run");
  }
  run.train_well({"train.steps=1"}, {"--overwrite"});  // one step has no curve
  for (const char* name : {"loss.png", "loss.svg"}) {
    EXPECT_FALSE(std::filesystem::exists(run.dir() / name)) << name;
  }
}

TEST(RunDir, FinishedRunIsReported) {
  const TinyRun run;
  run.train_well();
  const std::string hash = hash_of(run.dir()), metrics = slurp(run.dir() / "metrics.jsonl");
  const Ended ended = run.train();
  EXPECT_EQ(ended.exit_code, 0);
  expect_parts(ended.err, {"finished at step 6"});
  EXPECT_EQ(hash_of(run.dir()), hash);
  EXPECT_EQ(slurp(run.dir() / "metrics.jsonl"), metrics);
}

TEST(RunDir, AnotherTrainingIsRefusedAndPrinted) {
  const TinyRun run;
  run.train_well();
  run.write("other.txt", slurp(run / "train.txt"));
  const std::string stored = slurp(run.dir() / "run.yaml");
  const std::vector<std::pair<std::string, std::string>> changes = {
      {"model.num_layers", "1"},
      {"data.tokenizer", (run / "model").string()},
      {"seed", "8"},
      {"data.train", "[" + (run / "other.txt").string() + "]"},
      {"train.global_batch", "4"},
      {"train.precision", "bf16"},
      {"data.seq_length", "16"},
      {"model.freeze", "[model.norm.weight]"}};
  for (const auto& [key, value] : changes) {
    const Ended ended = run.train({key + "=" + value, "train.steps=8"});
    EXPECT_EQ(ended.exit_code, 2) << key;
    expect_parts(ended.err, {"holds another run", key + ": ", " -> ", "--overwrite"});
  }
  const Ended two = run.train({"seed=8", "train.precision=bf16"});
  expect_parts(two.err, {"seed: 7 -> 8", "train.precision: fp32 -> bf16"});
  EXPECT_EQ(slurp(run.dir() / "run.yaml"), stored);
  EXPECT_EQ(metric_texts(run.dir(), "loss").size(), 6u);
}

TEST(RunDir, HarmlessChangesArePrinted) {
  const TinyRun run;
  run.train_well();
  const Ended ended = run.train({"train.steps=8", "train.lr=0.002", "train.schedule=cosine",
                                 "train.log_every=3", "checkpoint.every=3", "train.micro_batch=2",
                                 "launch.threads=2", "checkpoint.keep=1"});
  EXPECT_EQ(ended.exit_code, 0) << ended.err;
  expect_parts(ended.err,
               {"train.steps: 6 -> 8", "train.lr: ", "train.schedule: constant -> cosine",
                "train.log_every: 1 -> 3", "checkpoint.every: 2 -> 3", "train.micro_batch: 4 -> 2",
                "launch.threads: 1 -> 2"});
  EXPECT_EQ(metric_texts(run.dir(), "loss").size(), 8u);
  expect_parts(slurp(run.dir() / "run.yaml"), {"schedule: cosine", "steps: 8"});
}

TEST(RunDir, MetricsHaveTheirKeysAndDigits) {
  const TinyRun run;
  run.train_well({"data.eval_fraction=0.2", "train.eval_every=2", "train.steps=8"});
  int steps = 0, epochs = 0, evals = 0;
  for (const Json& line : metric_lines(run.dir())) {
    std::vector<std::string> keys;
    for (const auto& [key, value] : line.as_object()) keys.push_back(key);
    if (line.find("loss")) {
      EXPECT_EQ(keys, (std::vector<std::string>{"step", "epoch", "loss", "grad_norm", "lr",
                                                "tokens", "target_tokens", "step_ms",
                                                "tokens_per_s", "mem_bytes", "time_s"}));
      EXPECT_EQ(line.at("step").as_int(), ++steps);
      EXPECT_EQ(line.at("tokens").as_int(), 8 * 24);
      EXPECT_GT(line.at("mem_bytes").as_int(), 1 << 20);
      EXPECT_LE(line.at("target_tokens").as_int(), 8 * 23);
    } else if (line.find("eval_loss")) {
      ++evals;
      EXPECT_TRUE(line.find("step") && line.find("eval_time_s"));
    } else {
      EXPECT_EQ(keys, (std::vector<std::string>{"epoch", "mean_loss", "time_s"}));
      EXPECT_EQ(line.at("epoch").as_int(), ++epochs);
    }
  }
  EXPECT_EQ(steps, 8);
  const Json data = event_lines(run.dir(), "started").at(0).at("data").at("train");
  EXPECT_EQ(data.at("rows").as_int(), 43);
  ASSERT_EQ(data.at("names").as_array().size(), 1u);
  expect_parts(slurp(run.dir() / "log/rank-00000.log"),
               {"data: train 1 file, 43 rows: " + data.at("names").as_array()[0].as_string()});
  EXPECT_EQ(epochs, 2);  // 43 rows, one empty, 0.2 for evaluation: four steps per epoch
  EXPECT_EQ(evals, 4);
  for (const std::string& text : metric_texts(run.dir(), "loss")) {
    char again[32];
    std::snprintf(again, sizeof again, "%.17g", std::stod(text));
    EXPECT_EQ(text, again);
  }
}

TEST(RunDir, EventsRecordTheRun) {
  const TinyRun run;
  run.train_well();
  for (const char* event : {"started", "finished"}) {
    const auto lines = event_lines(run.dir(), event);
    ASSERT_EQ(lines.size(), 1u) << event;
    for (const char* key : {"time", "rank", "host"}) EXPECT_TRUE(lines[0].find(key)) << key;
  }
  EXPECT_EQ(event_lines(run.dir(), "checkpoint").size(), 3u);
  EXPECT_EQ(event_lines(run.dir(), "finished")[0].at("step").as_int(), 6);
  EXPECT_TRUE(std::filesystem::exists(run.dir() / "log/rank-00000.log"));
  EXPECT_TRUE(std::filesystem::exists(run.dir() / "final/config.json"));
  EXPECT_FALSE(std::filesystem::exists(run.checkpoint(0)));
}

// Rows of one token have no target: nothing is learned from them, and that is reported.
TEST(RunDir, StepsWithoutTargetsAreSkippedAndCounted) {
  const TinyRun run;
  std::string rows;
  for (int i = 0; i < 24; ++i) rows += i < 16 ? "a\n" : "abc\n";
  run.write("train.txt", rows);
  const Ended ended = run.train(
      {"data.drop_empty=false", "data.append_eos=false", "data.shuffle=false", "train.steps=3"});
  EXPECT_EQ(ended.exit_code, 0) << ended.err;
  expect_parts(ended.err, {"2 of 3 steps had no target token"});
  for (const char* key : {"loss", "grad_norm"}) {
    const std::vector<std::string> told = metric_texts(run.dir(), key);
    ASSERT_GE(told.size(), 3u);
    EXPECT_EQ(told[0] + told[1], "nullnull") << key;
    EXPECT_NE(told[2], "null") << key;
  }
  EXPECT_EQ(event_lines(run.dir(), "finished").at(0).at("skipped_steps").as_int(), 2);
}

TEST(RunDir, StateNamesWhatLaterReadersNeed) {
  const TinyRun run;
  run.train_well();
  const Json state = parse_json(slurp(run.checkpoint(6) / "state.json"), "state.json");
  for (const char* key : {"rng", "exact"}) {
    ASSERT_TRUE(state.find(key)) << key;
    EXPECT_TRUE(state.at(key).is_null()) << key;
  }
  EXPECT_EQ(state.at("generation").as_int(), 0);
}

TEST(RunDir, KeepCountsTheNewest) {
  const TinyRun run;
  run.train_well({"checkpoint.every=1", "checkpoint.keep=2"});
  for (int64_t step = 1; step <= 6; ++step) {
    EXPECT_EQ(std::filesystem::exists(run.checkpoint(step)), step > 4) << step;
  }
}

TEST(RunDir, QuietPrintsNothing) {
  const TinyRun run;
  const Ended ended = run.train({}, {"--quiet"});
  EXPECT_EQ(ended.exit_code, 0);
  EXPECT_EQ(ended.out, "");
  EXPECT_EQ(ended.err, "");
  const Ended again = run.train({}, {"--quiet"});
  EXPECT_EQ(again.out + again.err, "");
  const Ended wrong = run.train({"seed=8"}, {"--quiet"});
  EXPECT_EQ(wrong.exit_code, 2);
  EXPECT_EQ(wrong.out, "");
  EXPECT_TRUE(wrong.err.starts_with("error: ")) << wrong.err;
}

TEST(RunDir, LoudPrintsTheResolvedFile) {
  const TinyRun run;
  const Ended ended = run.train();
  EXPECT_EQ(ended.out, "");
  expect_parts(ended.err, {"global_batch: 8", "# default", "# not built", " 1 thread, ", "step 6/6",
                           "final loss", "best loss", "rows dropped"});
}

// Once, though every rank knows: and not where there are enough cores. Not 85 lines of keys: what
// changed, and last where the run resumes.
TEST(RunDir, AResumePrintsWhatChanged) {
  const TinyRun run;
  run.train_well();
  const Ended ended = run.train({"train.steps=8"});
  EXPECT_EQ(ended.exit_code, 0) << ended.err;
  EXPECT_FALSE(contains(ended.err, "# default")) << ended.err;
  std::vector<std::string> lines;
  std::istringstream text(ended.err);
  for (std::string line; std::getline(text, line) && !contains(line, "step 7/8");)
    lines.push_back(line);
  ASSERT_GE(lines.size(), 2u);
  EXPECT_LT(lines.size(), 12u) << ended.err;
  EXPECT_TRUE(contains(lines[0], "train.steps: 6 -> 8")) << lines[0];
  EXPECT_TRUE(lines.back().starts_with("resumed from ")) << lines.back();
  EXPECT_TRUE(lines.back().ends_with("at step 6")) << lines.back();
}

TEST(RunDir, MoreThreadsThanCoresAreReportedOnce) {
  const TinyRun run;
  const auto warnings = [&](const std::vector<std::string>& sets) {
    const Ended ended = run.train(sets, {"--overwrite"});
    EXPECT_EQ(ended.exit_code, 0) << ended.err;
    std::vector<std::string> found;
    std::istringstream lines(ended.err);
    for (std::string line; std::getline(lines, line);) {
      if (contains(line, " take turns")) found.push_back(line);
    }
    return found;
  };
  const auto many = warnings({"train.steps=1", "parallel.dp=2", "launch.threads=1000"});
  ASSERT_EQ(many.size(), 1u);
  expect_parts(many[0], {"warning: 2 ranks x 1000 threads on ", "launch.threads"});
  EXPECT_EQ(warnings({"train.steps=1", "launch.threads=1"}), std::vector<std::string>());
}

TEST(RunDir, KeysWithoutEffectAreReportedOnce) {
  const TinyRun run;
  const Ended idle = run.train({"train.steps=1", "parallel.dp=2", "train.loss_scale=1024"});
  EXPECT_EQ(idle.exit_code, 0) << idle.err;
  const std::string told = "train.loss_scale: 1024 has no effect with train.precision fp32";
  const size_t first = idle.err.find(told);
  ASSERT_NE(first, std::string::npos) << idle.err;
  EXPECT_EQ(idle.err.find(told, first + 1), std::string::npos) << idle.err;
  // The resolved file holds the default, which nobody wrote.
  run.train_well({"name=plain", "train.steps=1"});
  std::filesystem::copy_file(run.dir("plain") / "run.yaml", run / "resolved.yaml");
  const Ended again = run_to_end({"train", (run / "resolved.yaml").string(), "--overwrite"});
  EXPECT_EQ(again.exit_code, 0) << again.err;
  EXPECT_FALSE(contains(again.err, "no effect")) << again.err;
}

// Numbers of the model's config.json are written unchanged.
TEST(RunDir, NumbersOfTheConfigKeepTheirForm) {
  const TinyRun run;
  run.change_config("initializer_range", 0.3);
  std::string config = slurp(run / "model/config.json");
  const size_t at = config.find("0.29999999999999999");
  ASSERT_NE(at, std::string::npos) << config;
  config.replace(at, 19, "0.3");
  const size_t end = config.rfind('}');
  config.insert(end, ", \"some_list\": [1e-06, 5, 1000000.0, 0.1]");
  run.write("model/config.json", config);
  run.train_well({"train.steps=1"});
  for (const auto& file : {run.dir() / "final/config.json", run.checkpoint(1) / "config.json"}) {
    const std::string text = slurp(file);
    expect_parts(text, {"\"initializer_range\": 0.3,", "1e-06", " 5,", "1000000.0", " 0.1\n"});
    EXPECT_EQ(parse_json(text, "t").at("some_list"), parse_json(config, "c").at("some_list"));
  }
}

// The same rows under their hub name: the same losses.
TEST(RunDir, RowsOfTheHuggingFaceCacheAreTrainedOn) {
  const TinyRun run;
  run.train_well();
  const std::string set = "hub/datasets--Org--Set";
  std::filesystem::create_directories(run / (set + "/snapshots/abc"));
  std::filesystem::create_directories(run / (set + "/refs"));
  run.write(set + "/refs/main", "abc");
  run.write(set + "/snapshots/abc/a.txt", slurp(run / "train.txt"));
  StartOptions options;
  options.env["HF_HUB_CACHE"] = (run / "hub").string();
  const Ended ended = run_to_end(
      run.words("train", {"name=hub", "data.train=hf://datasets/Org/Set/a.txt"}), options);
  EXPECT_EQ(ended.exit_code, 0) << ended.err;
  EXPECT_EQ(metric_texts(run.dir("hub"), "loss"), metric_texts(run.dir(), "loss"));
}

TEST(RunDir, TheStateHoldsTheNumericsFingerprint) {
  const TinyRun run;
  run.train_well({"train.steps=2", "parallel.mode=exact"});
  const Json state = parse_json(slurp(run.checkpoint(2) / "state.json"), "state.json");
  const Json& numerics = state.at("numerics");
  EXPECT_EQ(numerics.at("precision").as_string(), "fp32");
  EXPECT_EQ(numerics.at("mode").as_string(), "exact");
  EXPECT_EQ(numerics.at("exact_tp").as_int(), 2);
  EXPECT_EQ(numerics.at("probe").as_string().size(), 16u);
  // The same kernels: no warning. Others: both sides are named.
  Ended ended = run.train({"train.steps=3", "parallel.mode=exact"});
  EXPECT_FALSE(contains(ended.err, "bits of this run change")) << ended.err;
  StartOptions options;
  options.env["WEFT_CPU_LEVEL"] = "ref";
  ended = run_to_end(run.words("train", {"train.steps=4", "parallel.mode=exact"}), options);
  EXPECT_EQ(ended.exit_code, 0) << ended.err;
  expect_parts(ended.err,
               {"warning: the bits of this run change at the checkpoint: kernels: ",
                numerics.at("kernels").as_string() + " in the checkpoint, ref now", "probe: "});
}

TEST(RunDir, LargeIntegersOfAConfigurationKeepTheirDigits) {
  const TinyRun run;
  const std::string digits = "12345678901234567890";
  run.change_config("made_at", parse_json(digits, "digits"));
  run.train_well();
  expect_parts(slurp(run.dir() / "final/config.json"), {"\"made_at\": " + digits});
}

}  // namespace
}  // namespace weft::testing
