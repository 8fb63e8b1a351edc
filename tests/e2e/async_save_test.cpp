// tests/e2e/async_save_test.cpp: checkpoints that are written while training continues.
#include <gtest/gtest.h>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <random>
#include <thread>

#include "tests/e2e/tiny_run.h"
#include "tests/faults/preload.h"

namespace weft::testing {
namespace {

std::vector<std::string> many_saves(const TinyRun& run, const std::string& name,
                                    const std::string& layout) {
  return {"name=" + name,      layout,
          "train.steps=20",    "checkpoint.every=1",
          "checkpoint.keep=3", "data.eval=[" + (run / "eval.txt").string() + "]",
          "train.eval_every=4"};
}

class AsyncSaveIn : public ::testing::TestWithParam<Variant> {
 protected:
  const TinyRun run_;
  const std::string layout_ = GetParam().sets[0];
};

TEST_P(AsyncSaveIn, TheStateOfItsStepWhateverTrainingDoesMeanwhile) {
  for (const char* async : {"true", "false"}) {
    std::vector<std::string> sets = many_saves(run_, async, layout_);
    sets.push_back(std::string("checkpoint.async=") + async);
    run_.train_well(sets);
  }
  for (const int64_t step : {18, 19, 20})
    EXPECT_EQ(hash_of(run_.checkpoint(step, "true")), hash_of(run_.checkpoint(step, "false")))
        << step;
  EXPECT_EQ(hash_of(run_.dir("true") / "checkpoints/best"),
            hash_of(run_.dir("false") / "checkpoints/best"));
  EXPECT_EQ(metric_texts(run_.dir("true"), "loss"), metric_texts(run_.dir("false"), "loss"));
  // Those of the 20 steps, and of each best.
  EXPECT_EQ(event_lines(run_.dir("true"), "checkpoint").size(),
            event_lines(run_.dir("false"), "checkpoint").size());
}

// The disk fails for the first saves in the background; the run goes on and the last is there.
TEST_P(AsyncSaveIn, AFailingDiskIsReportedAndRetried) {
  const Ended ended = run_to_end(
      run_.words("train", {layout_, "train.steps=6", "checkpoint.every=1", "checkpoint.keep=9"}),
      {.env = fault_env("write:EIO:rank-00000.safetensors:1:2")});
  EXPECT_EQ(ended.exit_code, 0) << ended.err;
  expect_parts(ended.err, {"the checkpoint of step 1 could not be written"});
  EXPECT_FALSE(std::filesystem::exists(run_.checkpoint(1)));
  EXPECT_TRUE(std::filesystem::exists(run_.checkpoint(6)));
  EXPECT_GE(event_lines(run_.dir(), "error").size(), 1u);
}

INSTANTIATE_TEST_SUITE_P(Layouts, AsyncSaveIn,
                         ::testing::Values(Variant{"one", {"parallel.dp=1"}},
                                           Variant{"dp2", {"parallel.dp=2"}},
                                           Variant{"tp2", {"parallel.tp=2"}}),
                         kVariantName);

TEST(AsyncSave, IsTheDefaultAndSaysSo) {
  const TinyRun run;
  run.train_well({"train.steps=1"});
  EXPECT_TRUE(contains(slurp(run.dir() / "run.yaml"), "async: true  # default"));
  // It may change from start to start, as a memory that is short may make it.
  const Ended next = run.train({"train.steps=2", "checkpoint.async=false"});
  EXPECT_EQ(next.exit_code, 0) << next.err;
  EXPECT_TRUE(std::filesystem::exists(run.checkpoint(2)));
}

// A save at every step: most moments are inside one.
TEST(AsyncSave, KilledAtAnyMomentAWholeCheckpointIsFound) {
  const TinyRun run;
  std::mt19937 dice(7);
  run.train_well(many_saves(run, "whole", "parallel.mode=exact"));
  for (int i = 0; i < 10; ++i) {
    const char* layout = i % 2 == 0 ? "parallel.dp=1" : "parallel.dp=2";
    std::vector<std::string> sets = many_saves(run, "killed", "parallel.mode=exact");
    sets.emplace_back(layout);
    Program program(run.words("train", sets));
    const size_t steps = metric_texts(run.dir("killed"), "loss").size();
    program.wait_until([&] { return metric_texts(run.dir("killed"), "loss").size() > steps; });
    std::this_thread::sleep_for(std::chrono::microseconds(dice() % 20000));
    program.send(SIGKILL);
    program.wait();
  }
  std::vector<std::string> sets = many_saves(run, "killed", "parallel.mode=exact");
  run.train_well(sets);
  EXPECT_EQ(hash_of(run.dir("killed")), hash_of(run.dir("whole")));
  EXPECT_EQ(metric_texts(run.dir("killed"), "loss"), metric_texts(run.dir("whole"), "loss"));
  EXPECT_TRUE(event_lines(run.dir("killed"), "damaged").empty());
}

// What the other rank has written of a save that failed takes no space afterwards.
TEST(AsyncSave, AFailureOfOneRankLeavesNothing) {
  const TinyRun run;
  StartOptions options;
  options.env = fault_env("write:EIO:rank-00001.safetensors:1:99");
  const Ended ended = run_to_end(
      run.words("train", {"parallel.dp=2", "train.steps=3", "checkpoint.every=1"}), options);
  EXPECT_EQ(ended.exit_code, 1) << ended.err;
  expect_parts(ended.err, {"the checkpoint of step 1 could not be written",
                           "the checkpoint of step 3 could not be written"});
  for (const auto& entry : std::filesystem::directory_iterator(run.dir() / "checkpoints"))
    ADD_FAILURE() << entry.path();
}

// The loop waits for a save at the next one: that is in its event.
TEST(AsyncSave, TheEventTellsHowLongTheLoopWaited) {
  const TinyRun run;
  run.change_config("intermediate_size", Json(40000));  // a save takes longer than a step
  run.write("one.txt", "ab cd\n");
  run.train_well({"train.steps=6", "checkpoint.every=1", "data.seq_length=8",
                  "train.global_batch=1", "train.micro_batch=1", "train.eval_every=1",
                  "data.eval=[" + (run / "one.txt").string() + "]"});  // two saves a step
  double blocked_s = 0, write_s = 0;
  for (const Json& event : event_lines(run.dir(), "checkpoint")) {
    if (event.at("step").as_int() == 6) continue;  // not in the background
    EXPECT_LE(event.at("blocked_s").as_number(), event.at("write_s").as_number() + 0.5);
    blocked_s += event.at("blocked_s").as_number();
    write_s += event.at("write_s").as_number();
  }
  EXPECT_GT(blocked_s, 0.1 * write_s);
}

// "(NEED and LEFT bytes)" of a refusal.
int64_t missing_bytes(const std::string& err) {
  const size_t at = err.rfind('(', err.find(" bytes)"));
  int64_t need = 0, left = 0;
  EXPECT_EQ(std::sscanf(err.c_str() + at, "(%ld and %ld bytes)", &need, &left), 2) << err;
  return need - left;
}

// A limit of the shell that leaves room for the run, but not for a copy of its 230 MB of state.
TEST(AsyncSave, WithoutMemoryTheDefaultGivesWayAndARequestIsRefused) {
  const TinyRun run;
  run.change_config("intermediate_size", Json(100000));
  const auto train = [&](rlim_t limit, const std::string& set) {
    StartOptions options;
    options.address_bytes = limit;
    options.env = {{"MALLOC_ARENA_MAX", "1"}};  // else each thread reserves 64 MiB of addresses
    return run_to_end(
        run.words("train", {"launch.device=cpu", "train.steps=2", "checkpoint.every=1", set}),
        options);
  };
  const Ended plan = run_to_end(run.words("plan", {"launch.device=cpu"}, {"--json"}));
  EXPECT_GT(parse_json(plan.out, "plan").at("snapshot").as_int(), 230000000) << plan.out;

  const rlim_t low = rlim_t{256} << 20;
  const Ended refused = train(low, "seed=1");
  ASSERT_EQ(refused.exit_code, 2) << refused.err;
  const rlim_t limit = low + static_cast<rlim_t>(missing_bytes(refused.err)) + (rlim_t{150} << 20);

  const Ended requested = train(limit, "checkpoint.async=true");
  EXPECT_EQ(requested.exit_code, 2) << requested.err;
  expect_parts(requested.err,
               {"a copy of the state", "is available", "set checkpoint.async to false"});
  EXPECT_FALSE(std::filesystem::exists(run.dir()));

  const Ended ended = train(limit, "seed=1");
  EXPECT_EQ(ended.exit_code, 0) << ended.err;
  expect_parts(ended.err, {"a copy of the state", "checkpoints are written between steps"});
  EXPECT_TRUE(contains(slurp(run.dir() / "run.yaml"), "async: false  # memory is short"));
  EXPECT_TRUE(std::filesystem::exists(run.checkpoint(2)));
}

}  // namespace
}  // namespace weft::testing
