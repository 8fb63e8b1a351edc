// tests/train/engine_test.cpp: the engine's guarantees that no file shows: what is kept, in which
// type, and the sums over the passes of a step.
#include "train/engine.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "base/error.h"
#include "tests/batch_lists.h"
#include "tests/engine_step.h"

namespace weft {
namespace {

std::unique_ptr<Model> small_model() {
  return make_model(parse_json(R"({"architectures": ["LlamaForCausalLM"], "hidden_size": 32,
      "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4,
      "num_key_value_heads": 2, "vocab_size": 61, "initializer_range": 0.2})",
                               "config"),
                    {});
}

RunConfig small_config(const char* precision = "fp32", bool masters = true) {
  RunConfig c;
  c.train.global_batch = 4;
  c.train.micro_batch = 2;
  c.train.precision = precision;
  c.train.master_weights = masters;
  c.data.seq_length = 8;
  return c;
}

Batch make_batch(int64_t rows, bool labels = true) {
  Batch b;
  testing::BatchLists lists;
  for (int64_t i = 0; i < rows * 8; ++i) {
    lists.ids.push_back(static_cast<int32_t>(i * 7 % 61));
    lists.targets.push_back(labels && i % 8 < 5 ? static_cast<int32_t>(i * 5 % 61) : -1);
  }
  lists.lengths.assign(static_cast<size_t>(rows), 6);
  lists.put(8, &b);
  b.target_tokens = labels ? 5 * rows : 0;
  return b;
}

double eval_loss_sum(Engine& engine, const Batch& batch) {
  return engine.eval_loss(batch).loss.value();
}

std::vector<std::string> names(const std::vector<Slice>& slices, const std::string& ending) {
  std::vector<std::string> found;
  for (const Slice& s : slices) {
    if (s.name.ends_with(ending)) found.push_back(s.name);
  }
  return found;
}

TEST(Engine, CheckpointHoldsWhatTheContractSays) {
  const auto model = small_model();
  const size_t n = model->parameters().size();
  const Engine fp32(small_config(), *model, alone(), cpu_kernels(), 1);
  EXPECT_EQ(fp32.weights().checkpoint_slices().size(), 3 * n);
  EXPECT_TRUE(names(fp32.weights().checkpoint_slices(), "#master").empty());
  const Engine bf16(small_config("bf16"), *model, alone(), cpu_kernels(), 1);
  EXPECT_EQ(bf16.weights().checkpoint_slices().size(),
            3 * n);  // the master replaces the parameter
  EXPECT_EQ(names(bf16.weights().checkpoint_slices(), "#master").size(), n);
  for (const Slice& s : bf16.weights().checkpoint_slices())
    EXPECT_EQ(s.dtype, Dtype::kF32) << s.name;
  EXPECT_EQ(bf16.weights().weight_slices().size(), n);
  EXPECT_TRUE(names(bf16.weights().weight_slices(), "#master").empty());
  const Engine pure(small_config("bf16", false), *model, alone(), cpu_kernels(), 1);
  for (const Slice& s : pure.weights().checkpoint_slices())
    EXPECT_EQ(s.dtype, Dtype::kBf16) << s.name;
}

TEST(Engine, FrozenParametersHaveOnlyThemselves) {
  const auto model = small_model();
  RunConfig c = small_config("bf16");
  c.model.freeze = {"model.layers.0.*"};
  Engine engine(c, *model, alone(), cpu_kernels(), 1);
  const size_t frozen = 9, n = model->parameters().size();
  EXPECT_EQ(engine.weights().checkpoint_slices().size(), 3 * (n - frozen) + frozen);
  engine.init_weights(1);
  const std::string name = "model.layers.0.mlp.up_proj.weight";
  std::vector<std::byte> before(48 * 32 * 2);
  std::memcpy(before.data(), engine.parameter(name), before.size());
  const Batch batch = make_batch(4);
  run_passes(engine, batch);
  run_update(engine, 0.1, 1);
  EXPECT_EQ(std::memcmp(before.data(), engine.parameter(name), before.size()), 0);
}

TEST(Engine, LossIsTheSumOverPassesAndShortBatchesArePadded) {
  const auto model = small_model();
  RunConfig c = small_config();
  c.data.eval_fraction = 0.5;
  Engine engine(c, *model, alone(), cpu_kernels(), 1);
  engine.init_weights(1);
  const double four = run_passes(engine, make_batch(4)).loss.value();
  EXPECT_NEAR(eval_loss_sum(engine, make_batch(4)), four, 1e-6 * four);
  const double three = eval_loss_sum(engine, make_batch(3)),
               one = eval_loss_sum(engine, make_batch(1));
  EXPECT_GT(four, three);
  EXPECT_GT(three, one);
  EXPECT_GT(one, 0);
  EXPECT_EQ(run_passes(engine, make_batch(4)).loss.value(), four)
      << "evaluation leaves nothing behind";
}

TEST(Engine, NormIsOfTheMeanAndClippingLimitsTheStep) {
  const auto model = small_model();
  RunConfig c = small_config();
  c.train.clip_norm = 0;
  Engine engine(c, *model, alone(), cpu_kernels(), 1);
  engine.init_weights(1);
  const Batch batch = make_batch(4);
  run_passes(engine, batch);
  double squares = 0;
  for (const ParameterSpec& p : model->parameters()) {
    const float* g = engine.executor().at<float>(p.name + "#grad");
    for (int64_t i = 0; i < num_elements(p.shape); ++i) squares += double{g[i]} * g[i];
  }
  const double wanted = std::sqrt(squares) / static_cast<double>(batch.target_tokens);
  EXPECT_NEAR(run_update(engine, 1e-3, 1) / wanted, 1, 1e-12);
  EXPECT_FLOAT_EQ(*engine.executor().at<float>("grad_scale"), 1.0f / 20);
  c.train.clip_norm = 0.01;
  Engine clipped(c, *model, alone(), cpu_kernels(), 1);
  clipped.init_weights(1);
  run_passes(clipped, batch);
  EXPECT_NEAR(run_update(clipped, 1e-3, 1) / wanted, 1, 1e-12)
      << "the norm is reported before clipping";
  EXPECT_NEAR(*clipped.executor().at<float>("grad_scale") * 20, 0.01 / (wanted + 1e-6), 1e-6);
}

TEST(Engine, BatchWithoutLabelsHasNoLoss) {
  const auto model = small_model();
  Engine engine(small_config(), *model, alone(), cpu_kernels(), 1);
  engine.init_weights(1);
  EXPECT_EQ(run_passes(engine, make_batch(4, false)).loss.value(), 0);
}

// What tells a rank, after another's death, whether its arena still has the state of a snapshot.
TEST(Engine, KnowsTheUpdateThatItsStateIsOf) {
  const auto model = small_model();
  Engine engine(small_config(), *model, alone(), cpu_kernels(), 1);
  engine.init_weights(1);
  const Batch batch = make_batch(4), none = make_batch(4, false);
  engine.start_passes(batch);
  EXPECT_EQ(engine.whole_update(), std::nullopt);
  engine.start_update(1e-3, 1);
  EXPECT_EQ(engine.whole_update(), std::nullopt) << "may be in progress";
  engine.end_step();
  EXPECT_EQ(engine.whole_update(), 1);
  engine.start_passes(batch);
  engine.drop_steps();
  EXPECT_EQ(engine.whole_update(), 1) << "passes change nothing";
  engine.start_passes(batch);
  engine.start_update(1e-3, 2);
  engine.drop_steps();
  EXPECT_EQ(engine.whole_update(), std::nullopt);
  run_step(engine, none, 1e-3, 2);
  EXPECT_EQ(engine.whole_update(), std::nullopt) << "a step without targets has no update";
  engine.set_whole_update(7);
  run_step(engine, none, 1e-3, 8);
  EXPECT_EQ(engine.whole_update(), 7);
}

// On the CPU a step is done when it is started; its results wait until they are read.
TEST(Engine, StepsEndInTheirOrder) {
  const auto model = small_model();
  Engine engine(small_config(), *model, alone(), cpu_kernels(), 1);
  Engine waiting(small_config(), *model, alone(), cpu_kernels(), 1);
  engine.init_weights(1);
  waiting.init_weights(1);
  EXPECT_EQ(engine.max_steps_in_flight(), 0u);
  EXPECT_THROW(engine.end_step(), BugError);
  const Batch batch = make_batch(4), none = make_batch(4, false);
  EXPECT_EQ(engine.start_passes(batch), batch.target_tokens);
  engine.start_update(1e-3, 1);
  EXPECT_EQ(engine.start_passes(none), 0);
  engine.start_update(1e-3, 2);
  engine.start_passes(batch);
  EXPECT_THROW(engine.start_update(1e-3, 2), BugError) << "two at most";
  const Engine::StepResult wanted = run_step(waiting, batch, 1e-3, 1), got = engine.end_step();
  EXPECT_EQ(got.sums.loss.value(), wanted.sums.loss.value());
  EXPECT_EQ(got.sums.target_tokens, batch.target_tokens);
  EXPECT_EQ(got.grad_norm, wanted.grad_norm);
  EXPECT_EQ(engine.end_step().sums.loss.value(), 0);
}

TEST(Engine, ThreadsAsRequestedOrAsTheMachineAllows) {
  LaunchConfig c;
  c.threads = 3;
  EXPECT_EQ(choose_threads(c), 3);
  c.threads = 0;
  EXPECT_GE(choose_threads(c), 1);
}

}  // namespace
}  // namespace weft
