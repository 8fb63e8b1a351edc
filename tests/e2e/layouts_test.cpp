// tests/e2e/layouts_test.cpp: data.layout pack and dynamic from the run file to its end.
#include <fmt/core.h>
#include <gtest/gtest.h>

#include "tests/e2e/tiny_run.h"

namespace weft::testing {
namespace {

Json json_of(const std::vector<std::string>& words) {
  const Ended ended = run_to_end(words);
  EXPECT_EQ(ended.exit_code, 0) << ended.err;
  return parse_json(ended.out, "output");
}

class Layouts : public ::testing::TestWithParam<const char*> {
 protected:
  const TinyRun run_;
  std::vector<std::string> sets_ = {std::string("data.layout=") + GetParam(),
                                    "train.global_batch=4",
                                    "train.micro_batch=2",
                                    "data.seq_length=40",
                                    "train.eval_every=3",
                                    "data.eval=[" + (run_ / "eval.txt").string() + "]"};
};

// Stopped after every step, resumed with another number of ranks; over two epoch ends. With two
// groups of rows, dp 2 owns one per rank, dp 4 none.
TEST_P(Layouts, AnyStopAndAnyDpHaveTheSameBits) {
  const auto exact = with(sets_, {"parallel.mode=exact", "parallel.exact_dp=2"});
  run_.train_well(with(exact, {"name=whole", "train.steps=14"}));
  const std::vector<std::vector<std::string>> places = {{},
                                                        {"parallel.dp=2"},
                                                        {"parallel.dp=4", "parallel.shard=zero3"},
                                                        {"parallel.dp=2", "parallel.tp=2"},
                                                        {"parallel.dp=4"}};
  for (int step = 1; step <= 14; ++step) {
    const Ended ended =
        run_.train(with(with(exact, {"name=parts", fmt::format("train.steps={}", step)}),
                        places[static_cast<size_t>(step) % places.size()]));
    ASSERT_EQ(ended.exit_code, 0) << ended.err;
  }
  // Every part ends with an evaluation: those of the whole run are among them.
  EXPECT_EQ(hash_of(run_.dir("whole")), hash_of(run_.dir("parts")));
  for (const char* key : {"epoch", "loss", "grad_norm", "tokens", "target_tokens"}) {
    EXPECT_EQ(metric_texts(run_.dir("whole"), key), metric_texts(run_.dir("parts"), key)) << key;
  }
  const auto epochs = metric_texts(run_.dir("whole"), "mean_loss");
  EXPECT_GE(epochs.size(), 1u) << "the steps go over the end of an epoch";
}

// What the end of a run reports about its rows.
std::string counts_in(const std::string& err) {
  const size_t at = err.rfind("data: ");
  return at == std::string::npos ? "" : err.substr(at, err.find('\n', at) - at);
}

// Fast mode: dp 1, 2 and 4 read the same rows, and their losses differ only by rounding.
TEST_P(Layouts, EveryDpHasTheSameLosses) {
  std::string counts;  // of one rank, and of all together
  const auto train = [&](const std::string& name, const char* dp) {
    // Passes of one row everywhere: `dynamic` pads to the longest of a pass.
    const Ended ended = run_.train(
        with(sets_, {"name=" + name, "train.micro_batch=1", std::string("parallel.dp=") + dp}));
    EXPECT_EQ(ended.exit_code, 0) << ended.err;
    EXPECT_TRUE(contains(counts_in(ended.err), "positions of padding")) << ended.err;
    if (counts.empty()) counts = counts_in(ended.err);
    EXPECT_EQ(counts_in(ended.err), counts) << dp;
    return metric_lines(run_.dir(name));
  };
  const std::vector<Json> one = train("one", "1");
  for (const char* dp : {"2", "4"}) {
    const std::vector<Json> other = train(dp, dp);
    ASSERT_EQ(other.size(), one.size());
    for (size_t i = 0; i < one.size(); ++i) {
      for (const char* key : {"loss", "eval_loss"}) {
        if (const Json* wanted = one[i].find(key)) {
          EXPECT_NEAR(other[i].at(key).as_number(), wanted->as_number(), 2e-5) << key;
        }
      }
      for (const char* key : {"tokens", "target_tokens"}) {
        if (const Json* wanted = one[i].find(key)) {
          EXPECT_EQ(other[i].at(key).as_int(), wanted->as_int()) << key;
        }
      }
    }
  }
}

TEST_P(Layouts, PlanMatchesTheArenaAndEvalTheRun) {
  run_.train_well(sets_);
  const Json plan = json_of(run_.words("plan", sets_, {"--json"}));
  EXPECT_EQ(plan.at("arena").as_int(),
            event_lines(run_.dir(), "started").at(0).at("arena_bytes").as_int());
  const Json eval = json_of(run_.words("eval", sets_, {"--json"}));
  EXPECT_NEAR(eval.at("eval_loss").as_number(),
              std::stod(metric_texts(run_.dir(), "eval_loss").back()), 1e-6);
  EXPECT_EQ(eval.at("rows").as_int(), 11) << "rows of the file, without the empty one";
}

TEST_P(Layouts, VerifyHolds) {
  const Ended ended =
      run_to_end(run_.words("verify", with(sets_, {"parallel.mode=exact", "parallel.exact_dp=4"}),
                            {"--layouts", "dp=1; dp=2; dp=4,shard=zero3; tp=2", "--steps", "4",
                             "--out", (run_ / "verify").string()}));
  EXPECT_EQ(ended.exit_code, 0) << ended.out << ended.err;
}

INSTANTIATE_TEST_SUITE_P(All, Layouts, ::testing::Values("pack", "dynamic"),
                         [](const auto& p) { return std::string(p.param); });

// Every position of a padded row is a label, also of an empty one, in every layout of the mesh.
TEST(LearnedPadding, CountsAndHasTheSameBitsInEveryLayout) {
  const TinyRun run;
  const std::vector<std::string> sets = {"data.mask_padding=false", "data.drop_empty=false",
                                         "parallel.mode=exact", "parallel.exact_dp=4"};
  run.train_well(with(sets, {"name=one"}));
  for (const std::string& tokens : metric_texts(run.dir("one"), "target_tokens")) {
    EXPECT_EQ(tokens, std::to_string(8 * 23));
  }
  const std::vector<std::vector<std::string>> places = {{"parallel.dp=2", "parallel.tp=2"},
                                                        {"parallel.dp=4", "parallel.shard=zero3"}};
  for (const std::vector<std::string>& place : places) {
    const std::string name = "name=" + std::to_string(place.size()) + place[0].back();
    run.train_well(with(with(sets, place), {name}));
    EXPECT_EQ(hash_of(run.dir("one")), hash_of(run.dir(name.substr(5)))) << place[0];
  }
  run.train_well({"name=masked", "data.drop_empty=false"});
  EXPECT_NE(hash_of(run.dir("one")), hash_of(run.dir("masked")));
}

class Pack : public Layouts {};

// Epochs of packed rows: as many steps as whole batches, known before the start; nothing is lost.
TEST_P(Pack, EpochsCountsAndState) {
  std::string text = slurp(run_.file());
  text.replace(text.find("  steps: 6\n"), 11, "  epochs: 3\n");
  run_.write("run.yaml", text);
  const auto sets = with(sets_, {"train.schedule=linear", "checkpoint.every=1"});
  const Ended ended = run_.train(sets);
  ASSERT_EQ(ended.exit_code, 0) << ended.err;
  expect_parts(ended.err, {"data: 42 rows packed into", "% of them tokens", "rows dropped",
                           "positions of padding"});
  EXPECT_EQ(metric_texts(run_.dir(), "mean_loss").size(), 3u);
  // The rate falls to its last value at the last step: the total was right.
  const int64_t steps = static_cast<int64_t>(metric_texts(run_.dir(), "lr").size());
  EXPECT_NEAR(std::stod(metric_texts(run_.dir(), "lr").back()), 1e-2 / static_cast<double>(steps),
              1e-12);
  // Within the first window the position stays and the part moves.
  const Json state = parse_json(slurp(run_.checkpoint(steps - 1) / "state.json"), "state");
  EXPECT_EQ(state.at("position").as_int(), 0);
  EXPECT_GT(state.at("part").as_int(), 0);
}

TEST_P(Pack, InspectShowsSegments) {
  std::string text = slurp(run_.file());
  text.replace(text.find("  seq_length: 24\n"), 17, "  seq_length: 40\n  layout: pack\n");
  run_.write("run.yaml", text);
  const Json shown = json_of({"inspect", run_.file().string(), "--batches", "1", "--json"});
  const Json& row = shown.at("batches").as_array().at(0).at("rows").as_array().at(0);
  const auto& positions = row.at("position_ids").as_array();
  const auto& segments = row.at("segments").as_array();
  ASSERT_EQ(positions.size(), 40u);
  for (size_t t = 1; t < 40; ++t) {
    const bool same = segments[t].as_int() == segments[t - 1].as_int() && segments[t].as_int() > 0;
    EXPECT_EQ(positions[t].as_int(), same ? positions[t - 1].as_int() + 1 : 0);
  }
}

INSTANTIATE_TEST_SUITE_P(All, Pack, ::testing::Values("pack"),
                         [](const auto& p) { return std::string(p.param); });

}  // namespace
}  // namespace weft::testing
