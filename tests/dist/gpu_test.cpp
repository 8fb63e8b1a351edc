// tests/dist/gpu_test.cpp: several ranks on one GPU, emulated and, where there is one, real.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "tests/backends.h"
#include "tests/dist/alone.h"
#include "tests/engine_step.h"

namespace weft::testing {
namespace {

Json model(const char* architecture, bool tied) {
  Json c = parse_json(R"({"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2,
      "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 203,
      "initializer_range": 0.1})",
                      "config");
  c.set("architectures", Json(Json::Array{Json(architecture)}));
  c.set("tie_word_embeddings", Json(tied));
  return c;
}

MeshRun gpu_run(const Json& config, const char* precision, bool masters, int steps,
                const std::string& backend) {
  MeshRun run;
  run.model = config;
  run.config.train.global_batch = 8;
  run.config.train.precision = precision;
  run.config.train.master_weights = masters;
  run.config.train.clip_norm = 0.5;
  run.config.data.seq_length = 12;
  for (int s = 0; s < steps; ++s)
    run.batches.push_back(random_batch(8, 12, 203, static_cast<uint64_t>(100 + s)));
  run.eval = random_batch(7, 12, 203, 99);
  run.backend = backend;
  return run;
}

struct GpuModelCase {
  const char* name;
  const char* architecture;
  bool tied;
  const char* precision;
  bool masters;
};

class Gpu : public ::testing::TestWithParam<std::tuple<std::string, GpuModelCase>> {
 protected:
  const std::string& backend() const { return std::get<0>(GetParam()); }
  const GpuModelCase& test_case() const { return std::get<1>(GetParam()); }
  // A real GPU is tested more; the emulated one is slow.
  // Of the loss, relative: the types have 24, 8 and 11 bits.
  double tolerance() const {
    const std::string precision = test_case().precision;
    return precision == "fp32" ? 1e-5 : precision == "bf16" ? 2e-2 : 2e-3;
  }
  int steps() const { return backend() == "cuda" ? 30 : 3; }
  MeshRun run() const {
    const GpuModelCase& c = test_case();
    return gpu_run(model(c.architecture, c.tied), c.precision, c.masters, steps(), backend());
  }
};

TEST_P(Gpu, ExactModeHasTheSameBitsInEveryLayout) {
  MeshRun r = run();
  r.config.parallel.mode = "exact";
  const MeshResult one = train_at(r, {1, 1, "none"});
  for (const Place& place :
       {Place{1, 1, "none", 1}, Place{2, 1, "none"}, Place{1, 2, "none"}, Place{2, 1, "zero1", 2},
        Place{2, 2, "zero2"}, Place{2, 2, "zero3", 2}}) {
    EXPECT_EQ(join(differences(one, train_at(r, place))), "")
        << "dp " << place.dp << " tp " << place.tp << " " << place.shard << " micro "
        << place.micro;
  }
}

// One group of rows: each leaf goes to the owners of shards, and strategy none gathers their sums.
TEST_P(Gpu, ExactModeWhereDpOwnsNoGroups) {
  MeshRun r = run();
  r.config.parallel.mode = "exact";
  r.config.parallel.exact_dp = 1;
  const MeshResult one = train_at(r, {1, 1, "none"});
  for (const Place& place : {Place{2, 1, "none"}, Place{2, 1, "zero1"}, Place{2, 2, "none"}}) {
    EXPECT_EQ(join(differences(one, train_at(r, place))), "") << place.tp << " " << place.shard;
  }
}

TEST_P(Gpu, FastModeIsCloseInEveryLayout) {
  MeshRun r = run();
  const MeshResult one = train_at(r, {1, 1, "none"});
  const double bar = tolerance();
  for (const Place& place :
       {Place{2, 1, "none"}, Place{1, 2, "none"}, Place{2, 2, "zero1"}, Place{2, 2, "zero3", 2}}) {
    const MeshResult other = train_at(r, place);
    for (size_t s = 0; s < one.losses.size(); ++s) {
      EXPECT_LT(std::abs(one.losses[s] - other.losses[s]) / one.losses[s], bar)
          << "step " << s + 1 << " dp " << place.dp << " tp " << place.tp << " " << place.shard;
    }
  }
}

// The same run on the CPU: another order of sums, the same training.
TEST_P(Gpu, TrainsAsTheCpuDoes) {
  MeshRun r = run();
  const MeshResult gpu = train_at(r, {1, 1, "none", 2});
  r.backend = "";
  if (r.config.train.precision == "fp16") r.config.train.precision = "fp32";  // the CPU has no fp16
  const MeshResult cpu = train_at(r, {1, 1, "none", 2});
  const double bar = tolerance();
  for (size_t s = 0; s < cpu.losses.size(); ++s) {
    EXPECT_LT(std::abs(gpu.losses[s] - cpu.losses[s]) / cpu.losses[s], bar) << "step " << s + 1;
  }
}

TEST_P(Gpu, TwoRunsHaveTheSameBits) {
  const MeshRun r = run();
  EXPECT_EQ(join(differences(train_at(r, {1, 1, "none", 2}), train_at(r, {1, 1, "none", 2}))), "");
}

TEST_P(Gpu, StepsInFlightAreTheSame) {
  const MeshRun r = run();
  Alone ahead(r), waiting(r);
  ASSERT_EQ(ahead.engine.max_steps_in_flight(), 1u);
  std::vector<std::pair<double, double>> got, wanted;
  const auto end = [&] {
    const Engine::StepResult ended = ahead.engine.end_step();
    got.emplace_back(ended.sums.mean(), ended.grad_norm);
  };
  int64_t update = 0;
  for (const Batch& batch : r.batches) {
    ++update;
    ahead.engine.start_passes(batch);
    ahead.engine.start_update(1e-3, update);
    if (update > 1) end();
    wanted.emplace_back(run_passes(waiting.engine, batch).mean(), 0);
    wanted.back().second = run_update(waiting.engine, 1e-3, update);
  }
  end();
  EXPECT_EQ(got, wanted);
}

TEST_P(Gpu, ABatchWithoutTargetsChangesNothing) {
  const MeshRun r = run();
  Alone one(r);
  Batch none = r.batches[0];
  std::ranges::fill(none.values("targets"), -1);
  none.target_tokens = 0;
  one.engine.start_passes(none);
  one.engine.start_update(1e-3, 1);
  EXPECT_EQ(one.engine.end_step().sums.loss.value(), 0);
  Alone other(r);
  EXPECT_EQ(run_passes(one.engine, r.batches[0]).loss.value(),
            run_passes(other.engine, r.batches[0]).loss.value());
}

// Rows padded to a shorter length have a separate plan in the same memory.
TEST_P(Gpu, ShorterRowsTrainAsIfTheyWereTheLongest) {
  MeshRun dynamic = run(), short_rows = run();
  dynamic.config.data.layout = short_rows.config.data.layout = "dynamic";
  dynamic.config.data.seq_length = 96;
  short_rows.config.data.seq_length = 32;
  // fp16: the same factor, or small gradients are rounded elsewhere.
  short_rows.config.train.loss_scale = dynamic.config.train.loss_scale *
                                       static_cast<double>(short_rows.config.loss_divisor()) /
                                       static_cast<double>(dynamic.config.loss_divisor());
  Alone a(dynamic), b(short_rows);
  const Batch longest = random_batch(8, 96, 203, 7), shorter = random_batch(8, 32, 203, 8);
  run_passes(a.engine, longest);
  for (int i = 0; i < 3; ++i) {  // eager, captured, replayed
    EXPECT_EQ(run_passes(a.engine, shorter).loss.value(),
              run_passes(b.engine, shorter).loss.value());
    EXPECT_EQ(run_update(a.engine, 1e-3, i + 1), run_update(b.engine, 1e-3, i + 1));
  }
}

// Without clipping the update may sum the squares itself: the bits of a norm that never clips.
class GpuNorm : public ::testing::TestWithParam<std::string> {};

TEST_P(GpuNorm, WithoutClippingTheBitsAreTheSame) {
  MeshRun r = gpu_run(model("Qwen2ForCausalLM", true), "bf16", false, 3, GetParam());
  for (const Place& place : {Place{1, 1, "none"}, Place{2, 1, "none"}, Place{2, 2, "zero3", 2}}) {
    r.config.train.clip_norm = 1e9;
    const MeshResult checked = train_at(r, place);
    r.config.train.clip_norm = 0;
    EXPECT_EQ(join(differences(checked, train_at(r, place))), "")
        << "dp " << place.dp << " tp " << place.tp << " " << place.shard;
  }
}

INSTANTIATE_TEST_SUITE_P(Backends, GpuNorm, ::testing::ValuesIn(gpu_backend_names()),
                         [](const auto& c) { return c.param; });

INSTANTIATE_TEST_SUITE_P(
    Backends, Gpu,
    ::testing::Combine(
        ::testing::ValuesIn(gpu_backend_names()),
        ::testing::Values(GpuModelCase{"qwen2_fp32", "Qwen2ForCausalLM", true, "fp32", true},
                          GpuModelCase{"llama_bf16", "LlamaForCausalLM", false, "bf16", true},
                          GpuModelCase{"qwen2_bf16_pure", "Qwen2ForCausalLM", true, "bf16", false},
                          GpuModelCase{"qwen2_fp16", "Qwen2ForCausalLM", true, "fp16", true})),
    [](const auto& c) { return std::get<0>(c.param) + "_" + std::get<1>(c.param).name; });

}  // namespace
}  // namespace weft::testing
