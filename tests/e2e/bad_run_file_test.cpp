// tests/e2e/bad_run_file_test.cpp: every mistake in a run file is reported, with what to do, exit
// 2.
#include <gtest/gtest.h>

#include "kernel/device_kernels.h"
#include "tests/e2e/tiny_run.h"

namespace weft::testing {
namespace {

// The program's error has these parts, and it leaves no run directory.
void expect_run_file_refused(const TinyRun& run, const std::vector<std::string>& sets,
                             const std::vector<std::string>& parts) {
  const Ended ended = run.train(sets);
  EXPECT_EQ(ended.exit_code, 2) << ended.err;
  EXPECT_EQ(ended.out, "");
  EXPECT_TRUE(ended.err.starts_with("error: ")) << ended.err;
  expect_parts(ended.err, parts);
  EXPECT_FALSE(std::filesystem::exists(run / "runs")) << "something was written";
}

void append(const TinyRun& run, const std::string& text) {
  run.write("run.yaml", slurp(run.file()) + text);
}

TEST(BadRunFile, UnknownKeyHasFileLineAndSuggestion) {
  const TinyRun run;
  std::string text = slurp(run.file());
  text.replace(text.find("  micro_batch"), 13, "  micro_bacth");
  run.write("run.yaml", text);
  expect_run_file_refused(run, {}, {"run.yaml:14", "train.micro_bacth", "micro_batch"});
}

TEST(BadRunFile, UnknownSectionAndUnknownSet) {
  const TinyRun run;
  expect_run_file_refused(run, {"train.learning_rate=1"}, {"train.learning_rate", "--set"});
  expect_run_file_refused(run, {"train.stepps=1"}, {"train.stepps", "train.steps"});
  expect_run_file_refused(run, {"nonsense"}, {"nonsense"});
  append(run, "trian:\n  lr: 1\n");
  expect_run_file_refused(run, {}, {"trian", "train"});
}

TEST(BadRunFile, WrongTypesAndSeveralAtOnce) {
  const TinyRun run;
  expect_run_file_refused(run, {"train.lr=fast"}, {"train.lr", "fast", "number"});
  expect_run_file_refused(run, {"train.steps=1.5"}, {"train.steps", "1.5"});
  expect_run_file_refused(run, {"data.shuffle=maybe"}, {"data.shuffle", "maybe"});
  expect_run_file_refused(
      run, {"train.lr=-1", "train.precision=fp8", "nosuch.key=1", "data.seq_length=0"},
      {"train.lr", "train.precision", "fp8", "fp32", "nosuch.key", "data.seq_length"});
  append(run, "track: 3\n");
  expect_run_file_refused(run, {}, {"track"});
}

TEST(BadRunFile, MissingKeysAndFiles) {
  const TinyRun run;
  const Ended absent = run_to_end({"train", (run / "none.yaml").string()});
  EXPECT_EQ(absent.exit_code, 2);
  expect_parts(absent.err, {"none.yaml"});
  run.write("run.yaml", "seed: 3\n");
  expect_run_file_refused(run, {}, {"name", "model.path", "data.train"});
  run.write("run.yaml", "name: [a\n");
  expect_run_file_refused(run, {}, {"run.yaml"});
  run.write("run.yaml", "");
  expect_run_file_refused(run, {}, {"name"});
}

TEST(BadRunFile, UnbuiltFeaturesAreRejectedByName) {
  const TinyRun run;
  const std::vector<std::string> sets = {"train.optimizer=adamw8bit", "train.recompute=full",
                                         "train.offload=all", "track.tensorboard=true",
                                         "data.format=idx"};
  expect_run_file_refused(run, {"storage=gs://bucket/x"}, {"gs://", "s3://bucket/prefix"});
  if (!cuda_kernels())
    expect_run_file_refused(run, {"launch.device=cuda"},
                            {"does not have: set launch.device", "-DWEFT_CUDA=ON"});
  for (const std::string& set : sets) {
    expect_run_file_refused(
        run, {set}, {set.substr(0, set.find('=')), set.substr(set.find('=') + 1), "not have yet"});
  }
}

TEST(BadRunFile, DefaultsOfUnbuiltKeysAreFine) {
  const TinyRun run;
  run.train_well({"parallel.dp=1", "parallel.tp=1", "parallel.shard=none", "parallel.mode=fast",
                  "data.layout=pad", "train.optimizer=adamw", "train.recompute=none",
                  "train.offload=none", "launch.nodes=1", "launch.device=auto",
                  "track.tensorboard=false", "train.steps=1"});
  run.train_well({"launch.device=cpu", "train.steps=2"});
}

TEST(BadRunFile, AStarThatYamlParsesAsAnAliasIsExplained) {
  const TinyRun run;
  expect_run_file_refused(run, {"model.freeze=[*]"},
                          {"text that begins with * needs quotes", "--set 'model.freeze=[\"*\"]'"});
  expect_run_file_refused(run, {"model.freeze=[model.norm.weight, *.bias]"},
                          {"needs quotes", "--set 'model.freeze=[model.norm.weight, \"*.bias\"]'"});
  std::string text = slurp(run.file());
  run.write("run.yaml", text + "track:\n  wandb: *name\n");
  expect_run_file_refused(run, {}, {"run.yaml:", "text that begins with * needs quotes"});
}

TEST(BadRunFile, ContradictionsAreReported) {
  const TinyRun run;
  expect_run_file_refused(run, {"train.epochs=2", "train.steps=3"},
                          {"train.steps", "train.epochs"});
  expect_run_file_refused(run, {"train.micro_batch=3"}, {"train.global_batch 8", "micro_batch 3"});
  expect_run_file_refused(run, {"train.grad_accum=3"}, {"train.grad_accum is 3", "is 2:"});
  expect_run_file_refused(run, {"data.source={text}"}, {"data.source", "data.target"});
  expect_run_file_refused(run, {"data.source={text}", "data.target={text}", "data.text={text}"},
                          {"data.text", "data.source"});
  expect_run_file_refused(run, {"data.eval=[x]", "data.eval_fraction=0.1"},
                          {"data.eval", "eval_fraction"});
  expect_run_file_refused(run, {"data.layout=pack", "data.mask_padding=false"},
                          {"mask_padding", "pack"});
  expect_run_file_refused(run, {"name=a/b"}, {"a/b"});
  expect_run_file_refused(run, {"data.eval_fraction=1"}, {"data.eval_fraction"});
}

TEST(BadRunFile, NodesThatDoNotFitAreRefused) {
  const TinyRun run;
  expect_run_file_refused(run, {"launch.nodes=2", "launch.interface=eth7"},
                          {"parallel.dp=1 x parallel.tp=1 needs 1 rank, but launch.nodes is 2"});
  expect_run_file_refused(run, {"launch.nodes=3", "launch.interface=eth7", "parallel.dp=4"},
                          {"needs 4 ranks, but launch.nodes is 3", "one of 1, 2, 4"});
  expect_run_file_refused(
      run, {"launch.nodes=3", "launch.interface=eth7", "parallel.dp=2", "parallel.tp=2"},
      {"needs 4 ranks, but launch.nodes is 3", "one of 1, 2 and"});  // 4 would divide a tp group
  expect_run_file_refused(
      run, {"launch.nodes=2", "launch.interface=eth7", "launch.ranks_per_node=4", "parallel.dp=4"},
      {"launch.nodes is 2 and launch.ranks_per_node 4"});
  expect_run_file_refused(
      run, {"launch.nodes=2", "launch.interface=eth7", "parallel.tp=2"},
      {"parallel.tp=2 does not divide the number of ranks of a node, 1 (launch.nodes=2)",
       "set tp to 1, or use fewer nodes"});
  for (const char* lo : {"launch.interface=lo", "launch.interface=127.0.0.1"})
    expect_run_file_refused(run, {"launch.nodes=2", "parallel.dp=2", lo},
                            {"which other machines cannot reach, but launch.nodes is 2"});
  expect_run_file_refused(
      run, {"launch.nodes=2", "parallel.dp=2", "launch.interface=eth7"},
      {"this machine has no interface and no IPv4 address eth7", "available: "});
  expect_run_file_refused(run, {"launch.nodes=2", "parallel.dp=2", "launch.interface="},
                          {"launch.interface is empty", "available: "});
  const Ended secret = run_to_end(
      run.words("train", {"parallel.dp=2"}, {"--nodes", "2", "--secret-file", run / "nosuch"}),
      {.env = {{"WEFT_NODES_ON_LO", "1"}}});
  EXPECT_EQ(secret.exit_code, 2);
  expect_parts(secret.err, {"nosuch does not exist", "the first start makes RUN_DIR/secret"});
  expect_parts(
      run.train({"parallel.dp=2", "launch.slurm={wrap: hostname}"}, {"--engine", "slurm"}).err,
      {"launch.slurm: wrap is set by weft"});
  EXPECT_FALSE(std::filesystem::exists(run / "runs"));
}

TEST(BadRunFile, CommandLineMistakes) {
  const TinyRun run;
  for (const std::vector<std::string>& more : {std::vector<std::string>{"--engine", "ray"},
                                               {"--wait"},
                                               {"--nodes", "0"},
                                               {"--reusme", "auto"},
                                               {"extra"}}) {
    const Ended ended = run.train({}, more);
    EXPECT_EQ(ended.exit_code, 2);
    expect_parts(ended.err, {more[0]});
  }
}

}  // namespace
}  // namespace weft::testing
