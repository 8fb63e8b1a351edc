// tests/e2e/reshard_test.cpp: a checkpoint of any layout goes on in any other, to the bit.
#include <fmt/core.h>
#include <gtest/gtest.h>

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
// From, into: every layout on both sides. All 36 are run by tests/interop/reshard_interop.py.
constexpr int kPairs[][2] = {{0, 2}, {0, 5}, {1, 3}, {2, 0}, {2, 4},
                             {3, 1}, {4, 2}, {5, 3}, {5, 5}};

TEST(Reshard, AnyLayoutContinuesInAnother) {
  const TinyRun run;
  const Sets exact = {"parallel.mode=exact", "parallel.exact_dp=4", "train.steps=40",
                      "checkpoint.every=20"};
  run.train_well(with(exact, {"name=whole"}));
  const std::string hash = hash_of(run.dir("whole"));
  const Sets losses = metric_texts(run.dir("whole"), "loss");
  ASSERT_EQ(losses.size(), 40u);
  for (const auto& [from, into] : kPairs) {
    const std::string source = fmt::format("from{}", from);
    if (!std::filesystem::exists(run.dir(source)))
      run.train_well(with(with(exact, kOtherLayouts[from]), {"name=" + source}));
    const std::string name = fmt::format("{}into{}", source, into);
    run.train_well(with(with(exact, kOtherLayouts[into]), {"name=" + name}),
                   {"--resume", run.checkpoint(20, source).string()});
    EXPECT_EQ(hash_of(run.dir(name)), hash) << name;
    EXPECT_EQ(metric_texts(run.dir(name), "loss"), Sets(losses.begin() + 20, losses.end())) << name;
  }
}

}  // namespace
}  // namespace weft::testing
