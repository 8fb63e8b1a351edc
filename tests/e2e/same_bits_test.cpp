// tests/e2e/same_bits_test.cpp: one run file, one result: for any run, threads and passes.
#include <gtest/gtest.h>

#include <cmath>
#include <sstream>

#include "tests/e2e/tiny_run.h"

namespace weft::testing {
namespace {

struct Precision {
  const char* name;
  std::vector<std::string> sets;
};
std::ostream& operator<<(std::ostream& out, const Precision& p) { return out << p.name; }

class SameBits : public ::testing::TestWithParam<Precision> {
 protected:
  // Trains under a separate name.
  void train(const std::string& name, std::vector<std::string> more) const {
    more.insert(more.end(), GetParam().sets.begin(), GetParam().sets.end());
    more.push_back("name=" + name);
    run_.train_well(more);
  }
  void expect_equal(const std::string& a, const std::string& b) const {
    EXPECT_EQ(hash_of(run_.dir(a)), hash_of(run_.dir(b)));
    EXPECT_EQ(hash_of(run_.dir(a) / "final"), hash_of(run_.dir(b) / "final"));
    for (const char* key : {"loss", "grad_norm", "lr", "eval_loss"}) {
      EXPECT_EQ(metric_texts(run_.dir(a), key), metric_texts(run_.dir(b), key)) << key;
    }
    EXPECT_EQ(metric_texts(run_.dir(a), "loss").size(), 6u);
  }
  TinyRun run_;
};

TEST_P(SameBits, TwoRunsAndTwoThreads) {
  const std::string eval = "data.eval=[" + (run_ / "eval.txt").string() + "]";
  train("one", {eval});
  train("again", {eval});
  expect_equal("one", "again");
  train("threads", {eval, "launch.threads=2"});
  expect_equal("one", "threads");
  // The negative control: another seed, other bits.
  train("seed", {eval, "seed=8"});
  EXPECT_NE(hash_of(run_.dir("one")), hash_of(run_.dir("seed")));
  EXPECT_NE(metric_texts(run_.dir("one"), "loss"), metric_texts(run_.dir("seed"), "loss"));
}

INSTANTIATE_TEST_SUITE_P(
    Precisions, SameBits,
    ::testing::Values(Precision{"fp32", {}}, Precision{"bf16", {"train.precision=bf16"}},
                      Precision{"pure_bf16",
                                {"train.precision=bf16", "train.master_weights=false"}}),
    [](const auto& p) { return p.param.name; });

TEST(Accumulation, MicroBatchesHaveTheSameLoss) {
  const TinyRun run;
  std::vector<std::vector<double>> losses;
  for (const char* micro : {"8", "1", "2", "4"}) {
    const std::string name = std::string("micro") + micro;
    run.train_well({"name=" + name, std::string("train.micro_batch=") + micro});
    losses.emplace_back();
    for (const std::string& text : metric_texts(run.dir(name), "loss")) {
      losses.back().push_back(std::stod(text));
    }
    ASSERT_EQ(losses.back().size(), 6u);
    for (size_t s = 0; s < 6; ++s) {
      EXPECT_LT(std::abs(losses.back()[s] / losses[0][s] - 1), 1e-6) << name << " step " << s + 1;
    }
  }
  // It does learn.
  EXPECT_LT(losses[0][5], losses[0][0] - 0.2);
}

TEST(InitialWeights, ZeroStepsWriteThemToFinal) {
  const TinyRun run;
  run.train_well({"name=a", "train.steps=0"});
  run.train_well({"name=b", "train.steps=0"});
  run.train_well({"name=c", "train.steps=0", "seed=8"});
  EXPECT_EQ(hash_of(run.dir("a") / "final"), hash_of(run.dir("b") / "final"));
  EXPECT_NE(hash_of(run.dir("a") / "final"), hash_of(run.dir("c") / "final"));
  // A run from final/ starts where the random one would have.
  run.train_well({"name=random"});
  run.train_well(
      {"name=loaded", "model.init=pretrained", "model.path=" + (run.dir("a") / "final").string()});
  EXPECT_EQ(metric_texts(run.dir("random"), "loss"), metric_texts(run.dir("loaded"), "loss"));
  EXPECT_EQ(hash_of(run.dir("random") / "final"), hash_of(run.dir("loaded") / "final"));
}

// Lines of `weft hash` whose name contains the part.
std::string lines_with(const std::string& text, const std::string& part, bool wanted) {
  std::string found;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    const bool is_total = line.starts_with("weights ") || line.starts_with("states ");
    if (!is_total && contains(line, part) == wanted) found += line + "\n";
  }
  return found;
}

TEST(Freeze, FrozenParametersStayAndHaveNoStates) {
  const TinyRun run;
  run.train_well({"name=start", "train.steps=0"});
  const std::string source = "model.path=" + (run.dir("start") / "final").string();
  for (const char* precision : {"fp32", "bf16"}) {
    const std::string name = std::string("frozen_") + precision;
    run.train_well({"name=" + name, "model.init=pretrained", source,
                    std::string("train.precision=") + precision,
                    "model.freeze=[model.embed_tokens.*, \"model.layers.0.*\"]"});
    const std::string before = hash_of(run.dir("start") / "final");
    const std::string after = hash_of(run.dir(name) / "final");
    for (const char* part : {"embed_tokens", "layers.0."}) {
      EXPECT_FALSE(lines_with(before, part, true).empty());
      EXPECT_EQ(lines_with(before, part, true), lines_with(after, part, true)) << precision;
      EXPECT_FALSE(contains(lines_with(hash_of(run.dir(name)), part, true), "#")) << precision;
    }
    EXPECT_NE(lines_with(before, "layers.1.", true), lines_with(after, "layers.1.", true));
    EXPECT_TRUE(contains(hash_of(run.dir(name)), "model.layers.1.mlp.down_proj.weight#v"));
  }
}

}  // namespace
}  // namespace weft::testing
