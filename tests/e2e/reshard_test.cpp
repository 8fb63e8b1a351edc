// tests/e2e/reshard_test.cpp: a checkpoint of any layout goes on in any other, to the bit.
#include <fmt/core.h>
#include <gtest/gtest.h>

#include <memory>

#include "tests/e2e/tiny_run.h"

namespace weft::testing {
namespace {

using Sets = std::vector<std::string>;

const Sets kOtherLayouts[] = {
    {"parallel.dp=1"},
    {"parallel.dp=4"},
    {"parallel.dp=4", "parallel.shard=zero3"},
    {"parallel.tp=2"},
    {"parallel.dp=2", "parallel.tp=2", "parallel.shard=zero1"},
    {"parallel.dp=2", "parallel.tp=2", "parallel.shard=zero3"},
};
const Sets kReshardSets = {"parallel.mode=exact", "parallel.exact_dp=4", "train.steps=10",
                           "checkpoint.every=5"};

class Reshard : public ::testing::TestWithParam<std::pair<int, int>> {
 protected:
  static void SetUpTestSuite() {
    run_ = std::make_unique<TinyRun>();
    run_->train_well(with(kReshardSets, {"name=whole"}));
  }
  static void TearDownTestSuite() { run_.reset(); }

  static std::unique_ptr<TinyRun> run_;
};
std::unique_ptr<TinyRun> Reshard::run_;

TEST_P(Reshard, ALayoutContinuesInAnother) {
  const auto& [from, into] = GetParam();
  const std::string hash = hash_of(run_->dir("whole"));
  const Sets losses = metric_texts(run_->dir("whole"), "loss");
  ASSERT_EQ(losses.size(), 10u);
  const std::string source = fmt::format("from{}", from);
  if (!std::filesystem::exists(run_->dir(source)))
    run_->train_well(with(with(kReshardSets, kOtherLayouts[from]), {"name=" + source}));
  const std::string name = fmt::format("{}into{}", source, into);
  run_->train_well(with(with(kReshardSets, kOtherLayouts[into]), {"name=" + name}),
                   {"--resume", run_->checkpoint(5, source).string()});
  EXPECT_EQ(hash_of(run_->dir(name)), hash);
  EXPECT_EQ(metric_texts(run_->dir(name), "loss"), Sets(losses.begin() + 5, losses.end()));
}

// tests/interop/reshard_interop.py runs all 36 pairs.
INSTANTIATE_TEST_SUITE_P(Pairs, Reshard,
                         ::testing::Values(std::pair{0, 2}, std::pair{0, 5}, std::pair{1, 3},
                                           std::pair{2, 0}, std::pair{2, 4}, std::pair{3, 1},
                                           std::pair{4, 2}, std::pair{5, 3}, std::pair{5, 5}),
                         [](const auto& p) {
                           return fmt::format("{}_into_{}", p.param.first, p.param.second);
                         });

}  // namespace
}  // namespace weft::testing
