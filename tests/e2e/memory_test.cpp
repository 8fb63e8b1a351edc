// tests/e2e/memory_test.cpp: what exceeds this machine, or a shell's limit, is rejected before
// memory is allocated; absurd sizes are rejected at once, by every command.
#include <gtest/gtest.h>

#include <chrono>

#include "tests/e2e/tiny_run.h"

namespace weft::testing {
namespace {

constexpr const char* kLlama70B = R"({"architectures": ["LlamaForCausalLM"], "hidden_size": 8192,
    "intermediate_size": 28672, "num_hidden_layers": 80, "num_attention_heads": 64,
    "num_key_value_heads": 8, "vocab_size": 128256, "max_position_embeddings": 8192})";

// Below a second; the deadline is ten times that, and more under load.
constexpr double kDeadline = 20;

TEST(Memory, ALargeModelIsRefusedBeforeItIsAllocated) {
  const TinyRun run;
  run.write("model/config.json", kLlama70B);
  for (const char* dp : {"parallel.dp=1", "parallel.dp=2"}) {
    const Ended ended =
        Program(run.words("train", {dp, "parallel.shard=zero3", "launch.device=cpu"}))
            .wait(kDeadline);
    EXPECT_EQ(ended.exit_code, 2) << ended.err;
    expect_parts(ended.err, {"error: the run needs ", " GiB of memory",
                             " is available: ", "no layout fits: 70,553,706,496 parameters",
                             "weft plan RUN", "--force trains anyway"});
    EXPECT_EQ(count(ended.err, "error: "), 1) << ended.err;
    EXPECT_LT(ended.peak_bytes, int64_t{200} << 20);
    EXPECT_FALSE(std::filesystem::exists(run.dir()));
  }
  // A plan may be for another machine.
  const Ended plan = run_to_end(
      run.words("plan", {"parallel.dp=512", "parallel.shard=zero3", "train.global_batch=512",
                         "train.micro_batch=1", "launch.device=cpu"}));
  EXPECT_EQ(plan.exit_code, 0) << plan.err;
  expect_parts(plan.out, {"expected peak of resident memory of a rank"});
}

// 65,536 rows at once need 3.7 GiB, more than the process may map.
TEST(Memory, LimitsOfTheShellAreRefusedOrForced) {
  const TinyRun run;
  std::string rows;
  for (int i = 0; i < 65536; ++i) rows += "a row\n";
  run.write("train.txt", rows);
  const StartOptions limit{.address_bytes = rlim_t{2} << 30};
  for (const char* dp : {"parallel.dp=1", "parallel.dp=2"}) {
    const std::vector<std::string> sets = {"train.global_batch=65536", "train.micro_batch=65536",
                                           "launch.device=cpu", dp};
    const Ended ended = run_to_end(run.words("train", sets), limit);
    EXPECT_EQ(ended.exit_code, 2) << ended.err;
    expect_parts(ended.err, {"error: a process of the run needs ", " GiB of address space",
                             "ulimit -v of 2.0 GiB leaves ", "set train.micro_batch: "});
    EXPECT_EQ(count(ended.err, "error: "), 1) << ended.err;
    EXPECT_FALSE(std::filesystem::exists(run.dir()));
  }
  const Ended forced = run_to_end(
      run.words("train",
                {"train.global_batch=65536", "train.micro_batch=65536", "launch.device=cpu"},
                {"--force"}),
      limit);
  EXPECT_EQ(forced.exit_code, 1) << forced.err;
  expect_parts(forced.err, {"warning: a process of the run needs ", "--force: ",
                            "error: cannot allocate ", " GiB of memory: ", "weft plan RUN --fit "});
}

// An evaluation of 65,536 rows at once, and a cache of 40 million positions.
TEST(Memory, EvaluationAndGenerationAreRefusedOrForced) {
  const TinyRun run;
  run.train_well({"train.steps=1"});
  const StartOptions limit{.address_bytes = rlim_t{1} << 30};
  const auto eval = [&](const std::vector<std::string>& more) {
    return run_to_end(
        run.words("eval",
                  {"data.eval=[" + (run / "eval.txt").string() + "]", "train.global_batch=65536",
                   "train.micro_batch=65536", "launch.device=cpu"},
                  more),
        limit);
  };
  const Ended refused = eval({});
  EXPECT_EQ(refused.exit_code, 2) << refused.err;
  expect_parts(refused.err,
               {"error: the evaluation needs ", " GiB of memory (an arena of ",
                "ulimit -v of 1.0 GiB", " bytes)", "lower train.micro_batch", "--force"});
  const Ended forced = eval({"--force"});
  EXPECT_EQ(forced.exit_code, 1) << forced.err;
  expect_parts(forced.err,
               {"warning: the evaluation needs ", "--force: ", "error: cannot allocate "});
  Json config = parse_json(slurp(run.dir() / "final/config.json"), "config.json");
  config.set("max_position_embeddings", 40'000'000);
  run.write("runs/tiny/final/config.json", config.dump());
  std::vector<std::string> words = {"generate",         (run.dir() / "final").string(),
                                    "--prompt",         "a",
                                    "--tokenizer",      "bytes",
                                    "--device",         "cpu",
                                    "--max-new-tokens", "39000000"};
  const Ended generated = run_to_end(words, limit);
  EXPECT_EQ(generated.exit_code, 2) << generated.err;
  expect_parts(generated.err, {"error: generation needs ", " GiB of memory",
                               "lower --batch or --max-new-tokens", "--force"});
  words.push_back("--force");
  const Ended tried = run_to_end(words, limit);
  EXPECT_EQ(tried.exit_code, 1) << tried.err;
  expect_parts(tried.err, {"warning: generation needs ", "--force: "});
}

TEST(Memory, AbsurdSizesAreRefusedByEveryCommand) {
  const std::pair<const char*, int64_t> absurd[] = {{"num_hidden_layers", 1'000'000'000},
                                                    {"vocab_size", 2'000'000'000},
                                                    {"hidden_size", 1'000'000'000},
                                                    {"intermediate_size", 1'000'000'000}};
  for (const auto& [key, value] : absurd) {
    const TinyRun run;
    run.change_config(key, Json(value));
    const std::string model = (run / "model").string();
    const std::string wanted = std::string("config.json: \"") + key + "\" must be ";
    for (const std::vector<std::string>& words :
         {run.words("train", {}), run.words("train", {"parallel.dp=2"}), run.words("plan", {}),
          run.words("plan", {}, {"--fit", "1GiB"}),
          run.words("eval", {"data.eval=[" + (run / "eval.txt").string() + "]"},
                    {"--model", model})}) {
      const Ended ended = Program(words).wait(kDeadline);
      EXPECT_EQ(ended.exit_code, 2) << words[0] << ended.err;
      expect_parts(ended.err, {wanted, std::to_string(value)});
    }
    const Ended shown = Program({"inspect", model}).wait(kDeadline);
    EXPECT_EQ(shown.exit_code, 0) << shown.err;
    expect_parts(shown.out, {"cannot_train: " + model + "/" + wanted});
  }
}

// Each is within its limits, but their product is not.
TEST(Memory, SizesThatCannotBeCountedAreRefused) {
  const TinyRun run;
  run.change_config("max_position_embeddings", 1 << 20);
  const Ended ended =
      Program(run.words("plan", {"train.global_batch=1000000000", "train.micro_batch=1000000000",
                                 "data.seq_length=1000000"}))
          .wait(kDeadline);
  EXPECT_EQ(ended.exit_code, 2) << ended.err;
  expect_parts(ended.err, {"a tensor of shape (1000000000, 1000000", "lower train.micro_batch"});
}

}  // namespace
}  // namespace weft::testing
