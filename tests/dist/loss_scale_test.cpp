// tests/dist/loss_scale_test.cpp: fp16's loss scale: found, kept, and the same in every layout.
#include "tensor/loss_scale.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "exec/memory_plan.h"
#include "tests/backends.h"
#include "tests/dist/alone.h"
#include "tests/engine_step.h"

namespace weft::testing {
namespace {

constexpr int64_t kFp16Vocab = 97, kFp16Rows = 4, kFp16Positions = 8;  // P is 32

MeshRun fp16_run(const std::string& backend, int steps, double loss_scale = 65536) {
  MeshRun run;
  run.model = parse_json(R"({"architectures": ["Qwen2ForCausalLM"], "hidden_size": 32,
      "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4,
      "num_key_value_heads": 2, "vocab_size": 97, "initializer_range": 0.1,
      "tie_word_embeddings": true})",
                         "config");
  run.config.train.precision = "fp16";
  run.config.train.loss_scale = loss_scale;
  run.config.train.global_batch = kFp16Rows;
  run.config.train.micro_batch = 2;
  run.config.train.clip_norm = 0.5;
  run.config.data.seq_length = kFp16Positions;
  for (int s = 0; s < steps; ++s)
    run.batches.push_back(
        random_batch(kFp16Rows, kFp16Positions, kFp16Vocab, static_cast<uint64_t>(40 + s)));
  run.backend = backend;
  return run;
}

TEST(LossScaleRule, HalvesAtOverflowDoublesAfterManyGoodSteps) {
  LossScale s{.factor = 8, .scale = 4};
  for (const float want : {2.0f, 1.0f, 1.0f}) {
    s.good_steps = 7;
    s = next_loss_scale(s, true);
    EXPECT_EQ(s.scale, want);
    EXPECT_EQ(s.factor, 2 * want);
    EXPECT_EQ(s.good_steps, 0);
  }
  EXPECT_EQ(s.skipped, 3);
  for (int i = 1; i < kGoodSteps; ++i) s = next_loss_scale(s, false);
  EXPECT_EQ(s.scale, 1.0f);
  EXPECT_EQ(s.good_steps, kGoodSteps - 1);
  s = next_loss_scale(s, false);
  EXPECT_EQ(s.scale, 2.0f);
  EXPECT_EQ(s.factor, 4.0f);
  EXPECT_EQ(s.good_steps, 0);
  s.scale = kMostLossScale;
  s.good_steps = kGoodSteps - 1;
  EXPECT_EQ(next_loss_scale(s, false).scale, kMostLossScale);
}

// An fp16 plan is bf16's plus the scale.
TEST(LossScalePlan, NeedsTheBytesOfBf16) {
  MeshRun run = fp16_run("ref", 0);
  const auto bytes = [&](const char* precision) {
    run.config.train.precision = precision;
    const auto model = make_model(run.model, {});
    return make_engine_plans(run.config, *model, Layout{}, 0, ref_kernels(), 1)
        ->layout.total_bytes();
  };
  EXPECT_EQ(bytes("fp16"), bytes("bf16") + align_up(sizeof(LossScale)));
}

class LossScaling : public ::testing::TestWithParam<std::string> {};
class LossScalingOnAGpu : public LossScaling {};

// Every batch is tried until its gradients are finite. Skipped steps leave no trace: a run that is
// given the found scales has the same bits.
TEST_P(LossScaling, AFarTooLargeScaleRecovers) {
  const MeshRun run = fp16_run(GetParam(), 3, 0x1p32);
  Alone searching(run);
  int64_t updates = 0;
  int skipped = 0;
  std::vector<std::pair<double, double>> got, want;
  std::vector<float> scales;  // of the steps that counted
  for (const Batch& batch : run.batches) {
    for (;;) {
      const std::vector<std::byte> before = searching.bytes();
      const float scale = searching.engine.loss_scale().scale;
      const double loss = run_passes(searching.engine, batch).mean();
      const double norm = run_update(searching.engine, 1e-3, updates + 1);
      ASSERT_TRUE(std::isfinite(loss));
      if (std::isfinite(norm)) {
        EXPECT_NE(searching.bytes(), before);
        got.emplace_back(loss, norm);
        scales.push_back(scale);
        ++updates;
        break;
      }
      EXPECT_EQ(searching.bytes(), before);
      const LossScale now = searching.engine.loss_scale();
      ASSERT_EQ(now.skipped, ++skipped);
      ASSERT_EQ(now.scale, std::exp2(32.0f - static_cast<float>(skipped)));
      ASSERT_EQ(now.factor, now.scale / 32);
      ASSERT_LT(skipped, 32);
    }
  }
  EXPECT_GT(skipped, 5);
  EXPECT_GT(scales.back(), 1024.0f);
  EXPECT_GE(searching.engine.loss_scale().good_steps, 1);

  Alone knowing(fp16_run(GetParam(), 3));
  for (size_t s = 0; s < scales.size(); ++s) {
    knowing.engine.set_loss_scale({.scale = scales[s]});
    const double loss = run_passes(knowing.engine, run.batches[s]).mean();
    want.emplace_back(loss, run_update(knowing.engine, 1e-3, static_cast<int64_t>(s) + 1));
  }
  EXPECT_EQ(knowing.engine.loss_scale().skipped, 0);
  EXPECT_EQ(got, want);
  EXPECT_EQ(searching.bytes(), knowing.bytes());
}

// The scale divides out: half of it yields nearly the same numbers (gradients below 2^-14 lose bits
// with it), and a doubling happens between two steps.
TEST_P(LossScaling, GrowsAfterGoodSteps) {
  const MeshRun run = fp16_run(GetParam(), 2, 64);
  Alone growing(run), constant(run);
  LossScale almost = growing.engine.loss_scale();
  almost.good_steps = kGoodSteps - 1;
  growing.engine.set_loss_scale(almost);
  for (int64_t s = 1; s <= 2; ++s) {
    for (Alone* one : {&growing, &constant})
      run_passes(one->engine, run.batches[static_cast<size_t>(s - 1)]);
    const double norm = run_update(growing.engine, 1e-3, s);
    EXPECT_NEAR(norm, run_update(constant.engine, 1e-3, s), 1e-3 * norm);
    EXPECT_EQ(growing.engine.loss_scale().scale, 128.0f);
    EXPECT_EQ(growing.engine.loss_scale().factor, 4.0f);
    EXPECT_EQ(growing.engine.loss_scale().good_steps, s - 1);
    EXPECT_EQ(constant.engine.loss_scale().scale, 64.0f);
  }
}

// A GPU is a pass ahead of the host: its report about a step belongs to that step.
TEST_P(LossScalingOnAGpu, StepsInFlightReportOverflow) {
  const MeshRun run = fp16_run(GetParam(), 1, 0x1p32);
  Alone one(run), waiting(run);
  for (int s = 0; s < 3; ++s) {
    one.engine.start_passes(run.batches[0]);
    if (s > 0) {
      const Engine::StepResult ended = one.engine.end_step();
      EXPECT_TRUE(std::isnan(ended.grad_norm));
      EXPECT_EQ(ended.loss_scale.skipped, s);
    }
    one.engine.start_update(1e-3, 1);
  }
  EXPECT_EQ(one.engine.end_step().loss_scale.scale, 0x1p29f);
  EXPECT_EQ(one.bytes(), waiting.bytes());
}

// Ten steps of fp16 against fp32 of the same kernels.
TEST_P(LossScaling, FollowsFp32) {
  MeshRun run = fp16_run(GetParam(), 10);
  const MeshResult half = train_at(run, {1, 1, "none", 4});
  run.config.train.precision = "fp32";
  const MeshResult full = train_at(run, {1, 1, "none", 4});
  for (size_t s = 0; s < full.losses.size(); ++s) {
    EXPECT_NEAR(half.losses[s], full.losses[s], 2e-3 * full.losses[s]) << "step " << s + 1;
    EXPECT_NEAR(half.norms[s], full.norms[s], 2e-2 * full.norms[s]) << "step " << s + 1;
  }
}

// Skipped steps and all. (Not ref: its sums are float64, without leaves.)
TEST_P(LossScalingOnAGpu, ExactModeHasTheSameBitsInEveryLayout) {
  MeshRun run = fp16_run(GetParam(), 4, 0x1p20);
  run.config.parallel.mode = "exact";
  const MeshResult one = train_at(run, {1, 1, "none"});
  const auto skipped = std::count_if(one.norms.begin(), one.norms.end(),
                                     [](double norm) { return std::isnan(norm); });
  EXPECT_TRUE(skipped > 0 && skipped < 4) << skipped;
  for (const Place& place : {Place{2, 1, "none"}, Place{1, 2, "none"}, Place{2, 2, "zero1", 2},
                             Place{2, 1, "zero3", 1}}) {
    EXPECT_EQ(join(differences(one, train_at(run, place))), "")
        << "dp " << place.dp << " tp " << place.tp << " " << place.shard;
  }
}

INSTANTIATE_TEST_SUITE_P(Backends, LossScalingOnAGpu, ::testing::ValuesIn(gpu_backend_names()),
                         [](const auto& c) { return c.param; });
INSTANTIATE_TEST_SUITE_P(Backends, LossScaling, ::testing::ValuesIn([] {
                           std::vector<std::string> names = gpu_backend_names();
                           names.emplace_back("ref");
                           return names;
                         }()),
                         [](const auto& c) { return c.param; });

}  // namespace
}  // namespace weft::testing
