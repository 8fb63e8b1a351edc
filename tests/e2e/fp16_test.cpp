// tests/e2e/fp16_test.cpp: train.precision: fp16 through the program: refused, trained, resumed.
//
// The CPU's kernels have no fp16, so the runs here use `ref`, slow as it is.
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <sstream>

#include "tests/checkpoint/commit_again.h"
#include "tests/e2e/tiny_run.h"

namespace weft::testing {
namespace {

Ended train(const TinyRun& run, std::vector<std::string> sets) {
  sets.insert(sets.end(), {"train.precision=fp16", "launch.device=cpu"});
  return run_to_end(run.words("train", sets), {.env = {{"WEFT_CPU_LEVEL", "ref"}}});
}

TEST(Fp16, OnTheCpuItIsRefused) {
  const TinyRun run;
  for (const char* command : {"train", "plan"}) {
    const Ended ended =
        run_to_end(run.words(command, {"train.precision=fp16", "launch.device=cpu"}));
    EXPECT_EQ(ended.exit_code, 2) << command;
    expect_parts(ended.err, {"fp16", "needs a GPU", "bf16 or fp32"});
  }
  EXPECT_FALSE(std::filesystem::exists(run.dir()));
}

TEST(Fp16, IncompatibleKeysAreRejected) {
  const TinyRun run;
  const Ended ended = train(run, {"train.master_weights=false", "train.loss_scale=1000"});
  EXPECT_EQ(ended.exit_code, 2);
  expect_parts(ended.err, {"train.master_weights", "bf16", "train.loss_scale is 1000", "power"});
}

// A scale of 2^28 overflows for some steps. A run that is stopped among these, and again later, has
// the lines and the bits of an uninterrupted one; skipped steps do not advance the schedule.
TEST(Fp16, FindsItsScaleAndResumes) {
  const TinyRun run;
  const std::vector<std::string> sets = {"train.loss_scale=268435456", "train.warmup_steps=5",
                                         "train.schedule=constant"};
  const auto with = [&](const char* name, int steps) {
    std::vector<std::string> all = sets;
    all.insert(all.end(), {std::string("name=") + name, "train.steps=" + std::to_string(steps)});
    return train(run, all);
  };
  const Ended whole = with("whole", 16);
  ASSERT_EQ(whole.exit_code, 0) << whole.err;
  for (const int steps : {3, 12, 16}) {
    const Ended part = with("parts", steps);
    // Three steps find no scale: nothing was learned, and there is no model to write.
    ASSERT_EQ(part.exit_code, steps == 3 ? 1 : 0) << part.err;
    EXPECT_EQ(contains(part.err, "each overflowed in fp16"), steps == 3) << part.err;
    EXPECT_EQ(std::filesystem::exists(run.dir("parts") / "final"), steps != 3);
  }
  EXPECT_EQ(hash_of(run.dir("whole")), hash_of(run.dir("parts")));
  for (const char* key : {"loss", "grad_norm", "lr", "loss_scale"}) {
    EXPECT_EQ(metric_texts(run.dir("whole"), key), metric_texts(run.dir("parts"), key)) << key;
  }
  int64_t skipped = 0;
  for (const Json& line : metric_lines(run.dir("whole"))) {
    if (!line.find("step")) continue;  // of an epoch
    const int64_t step = line.at("step").as_int();
    EXPECT_TRUE(line.at("loss").is_number());
    const double scale = line.at("loss_scale").as_number();
    EXPECT_EQ(scale, std::exp2(28.0 - static_cast<double>(skipped))) << step;
    EXPECT_EQ(line.at("lr").as_number(),
              1e-2 * std::min(1.0, static_cast<double>(step - 1 - skipped) / 5));
    if (line.at("grad_norm").is_null()) ++skipped;
  }
  EXPECT_GT(skipped, 4);
  EXPECT_LT(skipped, 12);
  for (const char* name : {"whole", "parts"}) {
    const std::vector<Json> told = event_lines(run.dir(name), "overflow");
    ASSERT_EQ(static_cast<int64_t>(told.size()), skipped);
    EXPECT_EQ(told[1].at("step").as_int(), 2);
    EXPECT_EQ(told[1].at("next_loss_scale").as_number(), 0x1p26);
    const Json state = parse_json(slurp(run.checkpoint(16, name) / "state.json"), "state.json");
    EXPECT_EQ(state.at("loss_scale").as_number(), std::exp2(28.0 - static_cast<double>(skipped)));
    EXPECT_EQ(state.at("loss_scaling").at("skipped_steps").as_int(), skipped);
    EXPECT_EQ(state.at("loss_scaling").at("good_steps").as_int(), 16 - skipped);
    EXPECT_EQ(state.at("updates").as_int(), 16 - skipped);
  }
  EXPECT_TRUE(contains(whole.err, ", fp16 with loss scale 268435456\n")) << whole.err;
  expect_parts(whole.err, {"too large for fp16 at loss scale 268435456", "overflowed in fp16"});
}

// From an older weft: the scale starts at train.loss_scale.
TEST(Fp16, ACheckpointWithoutLossScalingIsAccepted) {
  const TinyRun run;
  ASSERT_EQ(train(run, {"train.steps=2", "train.loss_scale=1024"}).exit_code, 0);
  const std::filesystem::path file = run.checkpoint(2) / "state.json";
  Json state = parse_json(slurp(file), "state.json");
  std::erase_if(state.as_object(), [](const auto& e) { return e.first == "loss_scaling"; });
  state.set("loss_scale", 4096);
  run.write("runs/tiny/checkpoints/step-00000002/state.json", state.dump());
  commit_again(run.checkpoint(2));
  const Ended ended = train(run, {"train.steps=4", "train.loss_scale=1024"});
  EXPECT_EQ(ended.exit_code, 0) << ended.err;
  expect_parts(ended.err, {"resumed from"});
  const std::vector<std::string> scales = metric_texts(run.dir(), "loss_scale");
  ASSERT_EQ(scales.size(), 4u);
  EXPECT_EQ(scales[2], "1024");
}

// A step that overflowed has no norms to compare; the others' norms exclude their scale.
TEST(Fp16, LayoutsAreComparedThoughStepsOverflow) {
  const TinyRun run;
  const std::filesystem::path out = run / "out";
  const Ended ended =
      run_to_end(run.words("verify",
                           {"train.precision=fp16", "launch.device=cpu",
                            "train.loss_scale=268435456", "train.lr=1e-4"},
                           {"--layouts", "dp=1; dp=2", "--steps", "10", "--out", out.string()}),
                 {.env = {{"WEFT_CPU_LEVEL", "ref"}}});
  EXPECT_EQ(ended.exit_code, 0) << ended.err << ended.out;
  EXPECT_FALSE(event_lines(out / "dp_2", "overflow").empty());
  EXPECT_TRUE(contains(ended.out, "gradients 0.3")) << ended.out;
  EXPECT_FALSE(contains(slurp(out / "dp_2/tensor_hashes.jsonl"), "null"));
  // Of the sum of the losses: the norm of the mean, times the targets.
  std::map<int64_t, double> expected;
  for (const Json& line : metric_lines(out / "dp_2")) {
    if (!line.find("step") || !line.at("grad_norm").is_number()) continue;
    expected[line.at("step").as_int()] =
        line.at("grad_norm").as_number() * line.at("target_tokens").as_number();
  }
  std::istringstream hashes(slurp(out / "dp_2/tensor_hashes.jsonl"));
  size_t compared = 0;
  for (std::string text; std::getline(hashes, text);) {
    const Json line = parse_json(text, "hashes");
    if (!line.find("norms")) continue;
    double squares = 0;
    for (const auto& [name, norm] : line.at("norms").as_object())
      squares += norm.as_number() * norm.as_number();
    const int64_t step = line.at("step").as_int();
    EXPECT_NEAR(std::sqrt(squares) / expected.at(step), 1, 1e-3) << text;
    ++compared;
  }
  EXPECT_GT(compared, 0u);
  EXPECT_EQ(compared, expected.size());
}

TEST(Fp16, ANonFiniteLossEndsTheRun) {
  const TinyRun run;
  const Ended ended = train(run, {"train.lr=100000"});
  EXPECT_EQ(ended.exit_code, 1);
  expect_parts(ended.err, {"the loss of step", "whose largest value is 65504", "bf16 or fp32"});
}

// Masters are what is saved and compared, as with bf16; final/ has the source's dtype.
TEST(Fp16, CheckpointsHoldMasters) {
  const TinyRun run;
  const Ended ended = train(run, {"train.steps=2"});
  ASSERT_EQ(ended.exit_code, 0) << ended.err;
  const std::string index = slurp(run.checkpoint(2) / "index.json");
  expect_parts(index, {"model.norm.weight#master", "model.norm.weight#m", "F32"});
  EXPECT_FALSE(contains(index, "F16"));
  EXPECT_FALSE(contains(hash_of(run.checkpoint(2)), "#master"));
  EXPECT_FALSE(contains(slurp(run.dir() / "final/model.safetensors").substr(0, 4096), "F16"));
}

}  // namespace
}  // namespace weft::testing
