// tests/e2e/resume_test.cpp: a run that was stopped, killed or extended has the bits of an
// uninterrupted one.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <unistd.h>

#include <csignal>
#include <random>
#include <thread>

#include "tests/checkpoint/commit_again.h"
#include "tests/e2e/tiny_run.h"

namespace weft::testing {
namespace {

// Goes over two epoch ends (5 steps each), with accumulation, evaluation and eval_fraction's split.
std::vector<std::string> long_run(const TinyRun& run, const std::string& name) {
  return {"name=" + name, "train.steps=12", "train.eval_every=3", "checkpoint.every=4",
          "data.eval=[" + (run / "eval.txt").string() + "]"};
}

void expect_equal_runs(const TinyRun& run, const std::string& a, const std::string& b) {
  EXPECT_EQ(hash_of(run.dir(a)), hash_of(run.dir(b)));
  EXPECT_EQ(hash_of(run.dir(a) / "final"), hash_of(run.dir(b) / "final"));
  EXPECT_EQ(hash_of(run.dir(a) / "checkpoints/best"), hash_of(run.dir(b) / "checkpoints/best"));
  for (const char* key :
       {"step", "epoch", "loss", "grad_norm", "mean_loss", "eval_loss", "target_tokens"}) {
    EXPECT_EQ(metric_texts(run.dir(a), key), metric_texts(run.dir(b), key)) << key;
  }
}

int64_t num_steps(const std::filesystem::path& dir) {
  return static_cast<int64_t>(metric_texts(dir, "loss").size());
}

// Weights of the same shapes, and another training: nothing is computed or written.
TEST(Resume, AnotherConfigurationOfTheModelIsRefused) {
  const TinyRun run;
  run.train_well({"train.steps=2"});
  const std::string before = hash_of(run.dir());
  run.change_config("rms_norm_eps", Json(1e-2));
  run.change_config("attention_dropout", Json(0.5));
  const Ended ended = run.train({"train.steps=3"});
  EXPECT_EQ(ended.exit_code, 2);
  expect_parts(ended.err, {"config.json", "rms_norm_eps: ", " -> 0.01",
                           "attention_dropout: ", " -> 0.5", "undo the change"});
  EXPECT_EQ(hash_of(run.dir()), before);
  // null counts as absent, and who wrote the file does not matter.
  run.change_config("attention_dropout", Json());
  run.change_config("rms_norm_eps", Json(1e-5));
  run.change_config("transformers_version", Json("5.0"));
  run.train_well({"train.steps=3"});
}

// A checkpoint of an earlier weft has the old rule for evaluation rows. The resumed run keeps that
// rule, and so does `weft eval`.
TEST(Resume, TheOldRuleOfTheEvaluationSplitIsKept) {
  const TinyRun run;
  const std::string fraction = "data.eval_fraction=0.3";
  run.train_well({fraction, "train.steps=2"});
  const std::filesystem::path file = run.checkpoint(2) / "state.json";
  Json state = parse_json(slurp(file), "state.json");
  EXPECT_EQ(state.at("eval_split").as_string(), "exact");
  std::erase_if(state.as_object(), [](const auto& e) { return e.first == "eval_split"; });
  run.write("runs/tiny/checkpoints/step-00000002/state.json", state.dump());
  commit_again(run.checkpoint(2));
  run.train_well({fraction, "train.steps=3", "train.eval_every=1"});
  state = parse_json(slurp(run.checkpoint(3) / "state.json"), "state.json");
  EXPECT_EQ(state.at("eval_split").as_string(), "by_row");
  const auto eval = [&](const std::string& model) {
    const Ended ended = run_to_end(run.words("eval", {fraction}, {"--json", "--model", model}));
    EXPECT_EQ(ended.exit_code, 0) << ended.err;
    return parse_json(ended.out, "eval").at("eval_loss").dump();
  };
  const std::string trained = metric_texts(run.dir(), "eval_loss").back();
  EXPECT_EQ(eval(run.checkpoint(3).string()), trained);
  EXPECT_EQ(eval((run.dir() / "final/").string()), trained);
  std::filesystem::rename(run.dir() / "final", run / "moved");
  EXPECT_NE(eval((run / "moved").string()), trained) << "other rows";
}

// An extended run whose rate had decayed: both rates are named. An unchanged rate is not reported.
TEST(Resume, AJumpOfTheLearningRateIsWarned) {
  const TinyRun run;
  const std::vector<std::string> sets = {"train.schedule=linear", "train.lr=1e-3"};
  const auto with_steps = [&](const char* steps) {
    std::vector<std::string> all = sets;
    all.push_back(std::string("train.steps=") + steps);
    return all;
  };
  EXPECT_FALSE(contains(run.train(with_steps("4")).err, "learning rate"));
  const Ended ended = run.train(with_steps("8"));
  EXPECT_EQ(ended.exit_code, 0) << ended.err;
  expect_parts(ended.err,
               {"warning: the learning rate jumps", "0.00025 at step 4, 0.0005 at step 5"});
  run.train_well({"name=flat", "train.steps=2"});
  EXPECT_FALSE(contains(run.train({"name=flat", "train.steps=3"}).err, "learning rate"));
}

TEST(Resume, WarmupPastTheEndIsWarned) {
  const TinyRun run;
  Ended ended = run.train({"train.warmup_steps=100", "train.steps=2"});
  EXPECT_EQ(ended.exit_code, 0) << ended.err;
  expect_parts(ended.err, {"warning: train.warmup_steps is 100, but the run has 2 steps"});
  ended = run_to_end(run.words("plan", {"train.warmup_steps=100", "train.steps=2"}));
  expect_parts(ended.out + ended.err, {"train.warmup_steps is 100, but the run has 2 steps"});
}

// This many rows are not counted before the run.
TEST(Resume, WarmupPastTheEndOfUncountedEpochsIsWarned) {
  const TinyRun run;
  std::string rows;
  for (int i = 0; i < 20'100; ++i) rows += "ab\n";
  run.write("train.txt", rows);
  Program program(
      run.words("train", {"train.steps=null", "train.epochs=2", "train.warmup_steps=6000"}));
  ASSERT_TRUE(program.wait_until([&] { return num_steps(run.dir()) > 0; }));
  program.send(SIGTERM);
  const Ended ended = program.wait();
  EXPECT_EQ(ended.exit_code, 143) << ended.err;
  expect_parts(ended.err, {"train.warmup_steps is 6000, but the run has at most 5024 steps"});
}

// The lines of metrics.jsonl do not reach the checkpoint: nobody knows its last rate.
TEST(Resume, WithoutItsLastLineNoJumpIsClaimed) {
  const TinyRun run;
  const std::vector<std::string> sets = {"train.schedule=linear", "train.steps=6"};
  run.train_well(sets);
  const std::string metrics = slurp(run.dir() / "metrics.jsonl");
  run.write("runs/tiny/metrics.jsonl", metrics.substr(0, metrics.find('\n') + 1));
  EXPECT_FALSE(contains(run.train({"train.schedule=linear", "train.steps=8"}).err, "jumps"));
}

TEST(Resume, GoingBackKeepsTheAbandonedLines) {
  const TinyRun run;
  run.train_well({"checkpoint.every=2", "checkpoint.keep=9"});
  const size_t before = metric_texts(run.dir(), "loss").size();
  run.train_well({"checkpoint.every=2", "checkpoint.keep=9"},
                 {"--resume", run.checkpoint(4).string()});
  EXPECT_EQ(metric_texts(run.dir(), "loss").size(), before);
  expect_parts(slurp(run.dir() / "metrics.jsonl.abandoned"), {"{\"step\": 5", "\n{\"step\": 6"});
}

TEST(Resume, SignalsAtManyTimesChangeNothing) {
  const TinyRun run;
  run.train_well(long_run(run, "whole"));
  ASSERT_EQ(num_steps(run.dir("whole")), 12);
  const auto words = run.words("train", long_run(run, "stopped"));
  // Stopped again and again, after one more step each: every step is stopped at once.
  bool int_next = false;
  int stops = 0;
  for (; stops < 14; ++stops) {
    Program program(words);
    const int64_t before = num_steps(run.dir("stopped"));
    program.wait_until([&] { return num_steps(run.dir("stopped")) > before; });
    program.send(int_next ? SIGINT : SIGTERM);
    const Ended ended = program.wait();
    if (ended.exit_code == 0) break;
    ASSERT_EQ(ended.exit_code, int_next ? 130 : 143) << ended.signal << ended.err;
    expect_parts(ended.err, {int_next ? "SIGINT" : "SIGTERM", "saved at step"});
    EXPECT_TRUE(std::filesystem::exists(run.checkpoint(num_steps(run.dir("stopped")), "stopped")));
    EXPECT_FALSE(event_lines(run.dir("stopped"), "stopped").empty());
    int_next = !int_next;
  }
  EXPECT_GE(stops, 2);
  run.train_well(long_run(run, "stopped"));
  expect_equal_runs(run, "whole", "stopped");
}

// A signal may come before the first step, between steps or while the end is written.
TEST(Resume, SignalAtARandomTimeEndsInOrder) {
  const TinyRun run;
  const auto sets = long_run(run, "random");
  run.train_well(long_run(run, "whole"));
  std::mt19937 random(12345);
  for (int i = 0; i < 6; ++i) {
    Program program(run.words("train", sets));
    std::this_thread::sleep_for(std::chrono::milliseconds(random() % 120));
    program.send(SIGTERM);
    const Ended ended = program.wait();
    // Before the handler is installed there is nothing to save, and the default action is right.
    EXPECT_TRUE(ended.exit_code == 143 || ended.exit_code == 0 || ended.signal == SIGTERM)
        << ended.err;
  }
  run.train_well(sets);
  expect_equal_runs(run, "whole", "random");
}

TEST(Resume, KilledRunResumesFromItsLastCheckpoint) {
  const TinyRun run;
  run.train_well(long_run(run, "whole"));
  for (int64_t kill_after : {5, 10}) {
    Program program(run.words("train", long_run(run, "killed")));
    program.wait_until([&] { return num_steps(run.dir("killed")) >= kill_after; });
    program.send(SIGKILL);
    const Ended ended = program.wait();
    EXPECT_TRUE(ended.signal == SIGKILL || ended.exit_code == 0);
  }
  run.train_well(long_run(run, "killed"));
  expect_equal_runs(run, "whole", "killed");
}

TEST(Resume, RaisedStepsContinue) {
  for (const char* precision : {"fp32", "bf16"}) {
    const TinyRun run;
    const std::string p = std::string("train.precision=") + precision;
    run.train_well({"name=whole", p, "train.steps=12"});
    run.train_well({"name=raised", p, "train.steps=5"});
    const Ended more = run.train({"name=raised", p, "train.steps=12"});
    EXPECT_EQ(more.exit_code, 0);
    expect_parts(more.err,
                 {"train.steps: 5 -> 12", "resumed from", "at step 5", "finished step 12 in"});
    EXPECT_EQ(hash_of(run.dir("whole")), hash_of(run.dir("raised"))) << precision;
    EXPECT_EQ(metric_texts(run.dir("whole"), "loss"), metric_texts(run.dir("raised"), "loss"));
  }
}

TEST(Resume, RaisedEpochsContinue) {
  const TinyRun run;
  // The run file has steps; epochs need one without.
  std::string text = slurp(run.file());
  text.replace(text.find("  steps: 6\n"), 11, "  epochs: 1\n");
  run.write("run.yaml", text);
  run.train_well({"name=whole", "train.epochs=2"});
  EXPECT_EQ(num_steps(run.dir("whole")), 10);
  EXPECT_EQ(metric_texts(run.dir("whole"), "mean_loss").size(), 2u);
  run.train_well({"name=raised"});
  EXPECT_EQ(num_steps(run.dir("raised")), 5);
  run.train_well({"name=raised", "train.epochs=2"});
  EXPECT_EQ(hash_of(run.dir("whole")), hash_of(run.dir("raised")));
  EXPECT_EQ(metric_texts(run.dir("whole"), "loss"), metric_texts(run.dir("raised"), "loss"));
}

// A directory that another process holds: rejected, without first claiming to resume.
TEST(Resume, ARunInUseIsRefused) {
  const TinyRun run;
  run.train_well({"name=held"});
  const int fd = ::open((run.dir("held") / ".lock").c_str(), O_RDWR | O_CLOEXEC);
  ASSERT_EQ(::flock(fd, LOCK_EX | LOCK_NB), 0);
  const Ended ended = run.train({"name=held", "train.steps=8"});
  ::close(fd);
  EXPECT_EQ(ended.exit_code, 2);
  expect_parts(ended.err, {"another process is training in"});
  EXPECT_FALSE(contains(ended.err, "resumed from")) << ended.err;
}

TEST(Resume, EvalReportsTheStep) {
  const TinyRun run;
  const std::string rows = "data.eval=[" + (run / "eval.txt").string() + "]";
  run.train_well({"name=told", "train.steps=3"});
  const Ended ended = run_to_end(run.words("eval", {"name=told", rows}));
  EXPECT_EQ(ended.exit_code, 0) << ended.err;
  expect_parts(ended.out, {"step           3\n"});
  const Ended json = run_to_end(run.words("eval", {"name=told", rows}, {"--json"}));
  EXPECT_EQ(parse_json(json.out, "eval").at("step").as_int(), 3) << json.err;
}

// Killed after the last checkpoint and before final/: the end is written, nothing is reported
// twice.
TEST(Resume, EndWithoutAModelIsFinished) {
  const TinyRun run;
  const auto sets = long_run(run, "end");
  run.train_well(sets);
  const std::string metrics = slurp(run.dir("end") / "metrics.jsonl");
  const auto loss = event_lines(run.dir("end"), "finished").at(0).at("loss");
  std::filesystem::remove_all(run.dir("end") / "final");
  run.train_well(sets);
  EXPECT_EQ(slurp(run.dir("end") / "metrics.jsonl"), metrics);
  EXPECT_EQ(event_lines(run.dir("end"), "finished").at(1).at("loss"), loss);
  EXPECT_TRUE(std::filesystem::exists(run.dir("end") / "final/config.json"));
}

// Too many rows to count before the start: the end of the epoch is found when it comes.
TEST(Resume, EpochOfUnknownLengthEnds) {
  const TinyRun run;
  std::string text = slurp(run.file()), rows;
  text.replace(text.find("  steps: 6\n"), 11, "  epochs: 1\n");
  run.write("run.yaml", text);
  for (int i = 0; i < 20100; ++i) rows += "abcdefg\n";
  run.write("train.txt", rows);
  const std::vector<std::string> sets = {"train.global_batch=5000", "train.micro_batch=1000",
                                         "data.seq_length=2", "checkpoint.every=0",
                                         "model.num_layers=1"};
  run.train_well(sets);
  EXPECT_EQ(num_steps(run.dir()), 4);
  EXPECT_EQ(metric_texts(run.dir(), "mean_loss").size(), 1u);
  EXPECT_EQ(event_lines(run.dir(), "checkpoint").size(), 1u);
  const Ended again = run.train(sets);
  EXPECT_EQ(again.exit_code, 0);
  expect_parts(again.err, {"finished at step 4"});
  std::vector<std::string> more = sets;
  more.push_back("train.epochs=2");
  run.train_well(more);
  EXPECT_EQ(num_steps(run.dir()), 8);
}

TEST(Resume, DamagedCheckpointIsNamedAndTheOneBeforeUsed) {
  const TinyRun run;
  run.train_well({"name=whole", "train.steps=8"});
  run.train_well({"name=hurt"});
  std::filesystem::remove_all(run.dir("hurt") / "final");  // not finished
  const std::filesystem::path file = run.checkpoint(6, "hurt") / "rank-00000.safetensors";
  std::string bytes = slurp(file);
  bytes[bytes.size() / 2] = static_cast<char>(bytes[bytes.size() / 2] ^ 1);
  run.write("runs/hurt/checkpoints/step-00000006/rank-00000.safetensors", bytes);
  const Ended ended = run.train({"name=hurt", "train.steps=8"});
  EXPECT_EQ(ended.exit_code, 0);
  expect_parts(ended.err, {"step-00000006", "rank-00000.safetensors", "resumed from", "at step 4"});
  EXPECT_EQ(hash_of(run.dir("whole")), hash_of(run.dir("hurt")));
  EXPECT_EQ(metric_texts(run.dir("whole"), "loss"), metric_texts(run.dir("hurt"), "loss"));
}

TEST(Resume, DamagedNewestIsReplacedEvenWithOneKept) {
  const TinyRun run;
  run.train_well({"train.steps=4"});
  std::filesystem::remove_all(run.dir() / "final");  // not finished
  run.write("runs/tiny/checkpoints/step-00000004/index.json", "{}");
  const Ended ended = run.train({"train.steps=3", "checkpoint.keep=1"});
  EXPECT_EQ(ended.exit_code, 0) << ended.err;
  expect_parts(ended.err, {"at step 2", "kept as", "step-00000004.damaged"});
  EXPECT_TRUE(std::filesystem::exists(run.checkpoint(3) / "COMMITTED"));
  EXPECT_FALSE(std::filesystem::exists(run.checkpoint(4)));
  EXPECT_FALSE(std::filesystem::exists(run.checkpoint(2)));
  run.train_well({"train.steps=5"});
  EXPECT_EQ(num_steps(run.dir()), 5);
}

TEST(Resume, OlderCheckpointOfTheRunAbandonsTheLaterOnes) {
  const TinyRun run;
  run.train_well({"train.steps=10", "checkpoint.keep=10"});
  const Ended ended = run.train({"train.steps=4", "train.lr=0.02", "checkpoint.keep=2"},
                                {"--resume", run.checkpoint(2).string()});
  EXPECT_EQ(ended.exit_code, 0) << ended.err;
  for (int64_t step : {2, 4, 6, 8, 10}) {
    EXPECT_EQ(std::filesystem::exists(run.checkpoint(step)), step <= 4) << step;
  }
  EXPECT_EQ(hash_of(run.dir()), hash_of(run.checkpoint(4)));
  EXPECT_EQ(num_steps(run.dir()), 4);
  const Ended again = run.train({"train.steps=4", "train.lr=0.02"});
  expect_parts(again.err, {"finished at step 4"});
}

TEST(Resume, ACheckpointOfAnotherPrecisionOrFreezeHasAHint) {
  const TinyRun run;
  run.train_well({"name=first", "train.precision=bf16", "train.steps=2"});
  const std::vector<std::string> from = {"--resume", run.checkpoint(2, "first").string()};
  for (const char* change : {"train.precision=fp32", "model.freeze=[\"*norm*\"]"}) {
    const std::string precision =
        std::string(change).starts_with("model") ? "train.precision=bf16" : change;
    const Ended ended = run.train({"name=second", precision, change}, from);
    EXPECT_EQ(ended.exit_code, 2) << change << ended.err;
    const std::string key = std::string(change).substr(0, std::string(change).find('='));
    expect_parts(ended.err, {key + ": ", " -> ", "hint:", "as they were", "weft export"});
  }
}

TEST(Resume, GivenCheckpointIsTheStart) {
  const TinyRun run;
  run.train_well({"name=whole"});
  const Ended ended = run.train({"name=other"}, {"--resume", run.checkpoint(4, "whole").string()});
  EXPECT_EQ(ended.exit_code, 0) << ended.err;
  expect_parts(ended.err, {"at step 4"});
  EXPECT_EQ(hash_of(run.dir("whole")), hash_of(run.dir("other")));
  EXPECT_EQ(run.train({"name=none"}, {"--resume", (run / "nothing").string()}).exit_code, 2);
}

}  // namespace
}  // namespace weft::testing
