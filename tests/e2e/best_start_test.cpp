// tests/e2e/best_start_test.cpp: a sound best/ is named where no step is left, and can be resumed
// from.
#include <gtest/gtest.h>

#include "tests/e2e/tiny_run.h"

namespace weft::testing {
namespace {

namespace fs = std::filesystem;

TEST(BestStart, IsNamedAndWorksWhereNoStepIsSound) {
  for (const bool is_gone : {true, false}) {
    const TinyRun run;
    const std::vector<std::string> sets = {"data.eval=[" + (run / "eval.txt").string() + "]",
                                           "train.eval_every=3", "checkpoint.keep=1"};
    std::vector<std::string> to_9 = sets, whole = sets;
    to_9.push_back("train.steps=9");
    whole.insert(whole.end(), {"name=whole", "train.steps=9"});
    run.train_well(whole);
    run.train_well(sets);
    fs::remove_all(run.dir() / "final");
    if (is_gone) fs::remove_all(run.checkpoint(6));
    if (!is_gone) flip_in_the_middle(run.checkpoint(6) / "rank-00000.safetensors");
    const fs::path best = run.dir() / "checkpoints/best";
    const auto before = bytes_below(run.dir());
    const Ended refused = run.train(to_9);
    EXPECT_EQ(refused.exit_code, 2) << refused.err;
    expect_parts(refused.err, {"no sound one is left", "sound: checkpoints/best, of step 6",
                               "--resume " + best.string()});
    EXPECT_EQ(bytes_below(run.dir()), before);
    // No evaluation is better: best/ stays unchanged.
    std::vector<std::string> slow = to_9;
    slow.insert(slow.end(), {"train.lr=0.9", "train.steps=7"});
    const std::string bytes = slurp(best / "state.json");
    const Ended ended = run.train(slow, {"--resume", best.string()});
    EXPECT_EQ(ended.exit_code, 0) << ended.err;
    expect_parts(ended.err, {"at step 6", "finished step 7"});
    EXPECT_EQ(slurp(best / "state.json"), bytes);
    EXPECT_FALSE(fs::exists(run.dir() / "checkpoints/abandoned/best"));
    // As if undisturbed: the bits of an uninterrupted run.
    const Ended again = run.train(to_9, {"--resume", best.string()});
    EXPECT_EQ(again.exit_code, 0) << again.err;
    EXPECT_EQ(hash_of(run.dir()), hash_of(run.dir("whole")));
    EXPECT_EQ(metric_texts(run.dir(), "loss"), metric_texts(run.dir("whole"), "loss"));
  }
}

// Finished and pruned: more steps can start from the best.
TEST(BestStart, IsNamedByAFinishedRunWithoutCheckpoints) {
  const TinyRun run;
  const std::string eval = "data.eval=[" + (run / "eval.txt").string() + "]";
  run.train_well({eval, "train.eval_every=2"});
  for (const int64_t step : {2, 4, 6}) fs::remove_all(run.checkpoint(step));
  EXPECT_EQ(run.train({eval, "train.eval_every=2"}).exit_code, 0);
  const Ended further = run.train({eval, "train.eval_every=2", "train.steps=8"});
  EXPECT_EQ(further.exit_code, 2) << further.err;
  expect_parts(further.err, {"--resume " + (run.dir() / "checkpoints/best").string()});
}

// A damaged one is not offered.
TEST(BestStart, ADamagedOneIsNotNamed) {
  const TinyRun run;
  const std::string eval = "data.eval=[" + (run / "eval.txt").string() + "]";
  run.train_well({eval, "train.eval_every=2"});
  fs::remove_all(run.dir() / "final");
  for (const int64_t step : {2, 4, 6}) fs::remove_all(run.checkpoint(step));
  flip_in_the_middle(run.dir() / "checkpoints/best/rank-00000.safetensors");
  const Ended refused = run.train({eval, "train.eval_every=2"});
  EXPECT_EQ(refused.exit_code, 2) << refused.err;
  EXPECT_FALSE(contains(refused.err, "checkpoints/best")) << refused.err;
}

}  // namespace
}  // namespace weft::testing
