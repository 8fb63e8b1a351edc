// tests/e2e/generate_test.cpp: weft generate over several ranks, from checkpoints of any layout,
// and with stop strings.
#include <gtest/gtest.h>

#include <algorithm>

#include "base/file.h"
#include "tests/e2e/tiny_run.h"

namespace weft::testing {
namespace {

using Words = std::vector<std::string>;

Ended generate(const std::filesystem::path& model, Words more) {
  Words words = {"generate", model.string(), "--max-new-tokens", "24", "--threads", "1"};
  words.insert(words.end(), more.begin(), more.end());
  return run_to_end(words);
}

std::string made_by(const std::filesystem::path& model, const Words& more) {
  const Ended ended = generate(model, more);
  EXPECT_EQ(ended.exit_code, 0) << ended.err;
  return ended.out;
}

TEST(Generate, RanksHaveTheTokensOfOne) {
  const TinyRun run;
  run.train_well({"parallel.dp=2", "parallel.tp=2", "parallel.shard=zero3"});
  write_file_atomic(run / "prompts.txt", "one\na longer prompt than the others\ntwo\n");
  const Words json = {"--json", "--prompts", (run / "prompts.txt").string()};
  const std::string wanted = made_by(run.dir() / "final", json);
  EXPECT_EQ(std::count(wanted.begin(), wanted.end(), '\n'), 3);
  const auto with = [&](Words sets) {
    Words all = json;
    for (const std::string& set : sets) all.insert(all.end(), {"--set", set});
    return all;
  };
  for (const auto& model : {run.dir(), run.checkpoint(6), run.dir() / "final"}) {
    EXPECT_EQ(made_by(model, json), wanted) << model;
    EXPECT_EQ(made_by(model, with({"parallel.tp=2"})), wanted) << model;
  }
  EXPECT_EQ(made_by(run.dir(), with({"parallel.dp=2", "parallel.shard=zero3"})), wanted);
  EXPECT_EQ(made_by(run.dir(), with({"parallel.dp=2", "parallel.tp=2", "parallel.shard=zero3"})),
            wanted);
  const std::string exact = made_by(run.dir(), with({"parallel.mode=exact"}));
  EXPECT_EQ(made_by(run.dir(), with({"parallel.mode=exact", "parallel.tp=2"})), exact);
}

TEST(Generate, LayoutsThatCannotBeAreRefused) {
  const TinyRun run;
  run.train_well({"train.steps=1"});
  const auto refused = [&](const std::string& set, const Words& parts) {
    const Ended ended = generate(run.dir(), {"--prompt", "a", "--set", set});
    EXPECT_EQ(ended.exit_code, 2) << ended.err;
    expect_parts(ended.err, parts);
  };
  refused("parallel.tp=3", {"parallel.tp=3 does not divide", "admissible values of parallel.tp"});
  refused("parallel.dp=2", {"parallel.dp=2 with whole weights on every rank", "zero3"});
  refused("train.lr=1", {"--set train.lr=1", "keys of parallel alone"});
  refused("parallel.shard=zero7", {"parallel.shard", "zero3"});
}

// The text ends before it, on one rank and on two; tokens after it are not generated.
TEST(Generate, StopStringsEndTheText) {
  const TinyRun run;
  run.train_well();
  const Words prompt = {"--prompt", "The "};
  const std::string whole = made_by(run.dir(), prompt);
  ASSERT_GT(whole.size(), 12u);
  const std::string stop = whole.substr(5, 2);
  const std::string wanted = whole.substr(0, whole.find(stop)) + "\n";
  const auto with = [&](Words more) {
    more.insert(more.end(), prompt.begin(), prompt.end());
    return more;
  };
  EXPECT_EQ(made_by(run.dir(), with({"--stop", "\x01\x02", "--stop", stop})), wanted);
  EXPECT_EQ(made_by(run.dir(), with({"--stop", stop, "--set", "parallel.tp=2"})), wanted);
  EXPECT_EQ(made_by(run.dir(), with({"--stop", "\x01\x02"})), whole);
  const Json json = parse_json(made_by(run.dir(), with({"--json", "--stop", stop})), "generate");
  EXPECT_EQ(json.at("text").as_string() + "\n", wanted);
  EXPECT_EQ(json.at("ids").as_array().size(), whole.find(stop) + 2);  // bytes are tokens
  const Ended empty = generate(run.dir(), with({"--stop", ""}));
  EXPECT_EQ(empty.exit_code, 2);
  expect_parts(empty.err, {"--stop is empty"});
}

TEST(Generate, SaysWhereItComputes) {
  const TinyRun run;
  run.train_well({"train.steps=1"});
  const Ended chosen = generate(run.dir(), {"--prompt", "a"});
  expect_parts(chosen.err, {"on "});
  EXPECT_EQ(std::count(chosen.err.begin(), chosen.err.end(), '\n'), 1) << chosen.err;
  EXPECT_EQ(generate(run.dir(), {"--prompt", "a", "--device", "cpu"}).err, "");
}

}  // namespace
}  // namespace weft::testing
