// tests/e2e/changed_file_test.cpp: files that change during a run: named, state saved.
#include <fmt/core.h>
#include <gtest/gtest.h>

#include <fstream>
#include <tuple>

#include "tests/e2e/disturbed_run.h"

namespace weft::testing {
namespace {

namespace fs = std::filesystem;

struct Change {
  const char* name;
  void (*make)(const TinyRun& run);
  std::vector<std::string> parts;  // of the message
};
std::ostream& operator<<(std::ostream& out, const Change& c) { return out << c.name; }

std::string long_rows() {
  std::string rows;  // more than is kept in memory
  for (int i = 0; i < 9000; ++i) rows += std::string(1000, static_cast<char>('a' + i % 26)) + "\n";
  return rows;
}

fs::path in_cache(const TinyRun& run, const std::string& name) {
  for (const auto& entry : fs::recursive_directory_iterator(run / "cache")) {
    if (entry.path().filename() == name) return entry.path();
  }
  ADD_FAILURE() << "no " << name;
  return {};
}

const Change kChanges[] = {
    {"cut",
     [](const TinyRun& run) { fs::resize_file(run / "train.txt", 5'000'000); },
     {"train.txt changed while it was in use: it had 9009000 bytes, now 5000000"}},
    {"written",
     [](const TinyRun& run) {
       std::fstream(run / "train.txt", std::ios::in | std::ios::out) << "other words";
     },
     {"train.txt changed while it was in use: it had 9009000 bytes, now 9009000, with another"}},
    {"replaced",
     [](const TinyRun& run) {
       run.write("other.txt", "another file\n");
       fs::rename(run / "other.txt", run / "train.txt");
     },
     {"train.txt changed while it was in use: it had 9009000 bytes, now 13"}},
    {"index",
     [](const TinyRun& run) { fs::resize_file(in_cache(run, "index"), 0); },
     {"/index changed while it was in use: it had ", " bytes, now 0"}},
    {"tokens",
     [](const TinyRun& run) { fs::resize_file(in_cache(run, "tokens"), 0); },
     {"/tokens changed while it was in use"}},
};

class ChangedFileIn : public ::testing::TestWithParam<std::tuple<const char*, Change>> {};

TEST_P(ChangedFileIn, IsNamedAndTheLastStepIsSaved) {
  const auto& [ranks, change] = GetParam();
  const TinyRun run;
  run.write("train.txt", long_rows());
  const StartOptions options{.env = {{"WEFT_CACHE", (run / "cache").string()}}};
  Program program(run.words("train", {"train.steps=1000000", "checkpoint.every=1000000", ranks}),
                  options);
  // All blocks of the cache have been read by then; new ones would be rebuilt.
  ASSERT_TRUE(program.wait_until([&] { return num_steps(run, "tiny") > 150; }));
  change.make(run);
  const Ended ended = program.wait(60);
  EXPECT_EQ(ended.exit_code, 1) << change.name << ranks << ended.signal << ended.err;
  expect_parts(ended.err, change.parts);
  const auto steps = static_cast<int64_t>(num_steps(run, "tiny"));
  expect_parts(ended.err, {fmt::format("saved at step {}, before the rows that failed", steps)});
  EXPECT_TRUE(fs::exists(run.checkpoint(steps) / "COMMITTED")) << change.name;
}

std::string name_of_change(const ::testing::TestParamInfo<ChangedFileIn::ParamType>& p) {
  return fmt::format("{}_dp{}", std::get<1>(p.param).name, std::get<0>(p.param)[12]);
}

INSTANTIATE_TEST_SUITE_P(All, ChangedFileIn,
                         ::testing::Combine(::testing::Values("parallel.dp=1", "parallel.dp=2"),
                                            ::testing::ValuesIn(kChanges)),
                         name_of_change);

// Its rows are in memory, but the next start would find other ones.
TEST(ChangedFile, ASmallOneToo) {
  const TinyRun run;
  Program program(run.words("train", {"train.steps=1000000", "checkpoint.every=1000000"}));
  EXPECT_TRUE(program.wait_until([&] { return num_steps(run, "tiny") > 1; }));
  run.write("train.txt", slurp(run / "train.txt") + "one row more\n");
  const Ended ended = program.wait();
  EXPECT_EQ(ended.exit_code, 1) << ended.err;
  expect_parts(ended.err, {"train.txt changed while it was in use", "saved at step", "cp -p"});
}

// A save needs no file of model.path.
TEST(ChangedFile, ADamagedGenerationConfigLosesNoCheckpointAndNoFinal) {
  const std::string text = "{\n  \"eos_token_id\": 256,\n  \"top_k\": 7\n}\n";
  for (const char* ranks : {"parallel.dp=1", "parallel.dp=2"}) {
    const TinyRun run;
    run.write("model/generation_config.json", text);
    Program program(run.words("train", {"train.steps=300", "checkpoint.every=150", ranks}));
    ASSERT_TRUE(program.wait_until([&] { return num_steps(run, "tiny") >= 1; }));
    run.write("model/generation_config.json", "{\"eos_token_id\": ");
    const Ended ended = program.wait(60);
    EXPECT_EQ(ended.exit_code, 0) << ranks << ended.err;
    EXPECT_TRUE(fs::exists(run.checkpoint(300) / "COMMITTED")) << ended.err;
    EXPECT_TRUE(contains(slurp(run.dir() / "final/generation_config.json"), "\"top_k\": 7"));
  }
}

TEST(ChangedFile, OfAnEvaluation) {
  const TinyRun run;
  std::string rows;
  for (int i = 0; i < 400'000; ++i) rows += fmt::format("row {} of many, all alike\n", i);
  for (const std::string ranks : {"parallel.dp=1", "parallel.dp=2"}) {
    run.write("eval.txt", rows);
    Program program(
        run.words("train", {"name=" + ranks, ranks, "train.eval_every=1",
                            fmt::format("data.eval=[{}]", (run / "eval.txt").string())}));
    ASSERT_TRUE(program.wait_until([&] { return num_steps(run, ranks) == 1; }));
    fs::resize_file(run / "eval.txt", 1'000'000);
    const Ended ended = program.wait(60);
    EXPECT_EQ(ended.exit_code, 1) << ranks << ended.signal << ended.err;
    expect_parts(ended.err, {"eval.txt changed while it was in use", "saved at step 1"});
  }
}

// Detected when the evaluation begins, long after the last checkpoint.
TEST(ChangedFile, BetweenTwoEvaluations) {
  for (const std::string ranks : {"parallel.dp=1", "parallel.dp=2"}) {
    const TinyRun run;
    Program program(run.words(
        "train", {ranks, "train.steps=1000000", "checkpoint.every=1000000", "train.eval_every=50",
                  fmt::format("data.eval=[{}]", (run / "eval.txt").string())}));
    ASSERT_TRUE(program.wait_until([&] { return num_steps(run, "tiny") > 1; }));
    run.write("eval.txt", slurp(run / "eval.txt") + "one row more\n");
    const Ended ended = program.wait(60);
    EXPECT_EQ(ended.exit_code, 1) << ranks << ended.signal << ended.err;
    const auto steps = static_cast<int64_t>(num_steps(run, "tiny"));
    EXPECT_EQ(steps % 50, 0) << steps;
    expect_parts(ended.err, {"eval.txt changed while it was in use",
                             fmt::format("saved at step {}, before", steps)});
    EXPECT_TRUE(fs::exists(run.checkpoint(steps) / "COMMITTED")) << ranks;
  }
}

}  // namespace
}  // namespace weft::testing
