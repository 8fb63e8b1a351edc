// tests/planning/gpu_speeds_test.cpp: a GPU's speeds stored in a file, and the step time they
// predict.
#include "planning/gpu_speeds.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "base/file.h"
#include "planning/repeat.h"
#include "planning/speeds.h"
#include "train/engine.h"

namespace weft {
namespace {

GpuSpeeds some_speeds(double factor = 1) {
  GpuSpeeds s;
  s.gpu = "some GPU";
  s.tflops_fp32 = 50 * factor;
  s.tflops_tf32 = 400 * factor;
  s.tflops_bf16 = 671 * factor;
  s.tflops_attention_fp32 = 11 * factor;
  s.tflops_attention_bf16 = 192 * factor;
  s.copy_gb_per_s = 4189 * factor;
  return s;
}

// With the speeds of packed rows and of the built-in kernel.
GpuSpeeds all_speeds() {
  GpuSpeeds s = some_speeds();
  s.tflops_attention_packed_bf16 = 150;
  s.tflops_attention_builtin_bf16 = 60;
  s.tflops_attention_dropout_fp32 = 8;
  s.tflops_attention_dropout_bf16 = 40;
  return s;
}

std::unique_ptr<Model> half_a_billion(double dropout) {
  ModelOverrides overrides;
  overrides.dropout = dropout;
  return make_model(parse_json(R"({"architectures": ["Qwen2ForCausalLM"], "hidden_size": 896,
      "intermediate_size": 4864, "num_hidden_layers": 24, "num_attention_heads": 14,
      "num_key_value_heads": 2, "vocab_size": 151936, "tie_word_embeddings": true})",
                               "config"),
                    overrides);
}

RunConfig bf16_run(int64_t rows, int64_t passes) {
  RunConfig c;
  c.data.seq_length = 1024;
  c.train.precision = "bf16";
  c.train.master_weights = false;
  c.train.global_batch = rows * passes;
  c.train.micro_batch = rows;
  return c;
}

double step_ms(const GpuSpeeds& speeds, const RunConfig& c, double dropout = 0, bool tf32 = false) {
  const auto model = half_a_billion(dropout);
  const auto plans = make_engine_plans(c, *model, Layout{}, 0, cpu_kernels(), 1);
  return estimate_gpu_ms(plans->train, speeds, tf32);
}

double step_ms(const GpuSpeeds& speeds, int64_t rows, int64_t passes) {
  return step_ms(speeds, bf16_run(rows, passes));
}

// An H200 has these speeds and takes 53 ms (benchmarks/results/).
TEST(GpuSpeeds, PredictAStep) {
  const double ms = step_ms(some_speeds(), 8, 1);
  EXPECT_GT(ms, 53 * 0.85);
  EXPECT_LT(ms, 53 * 1.15);
  EXPECT_NEAR(ms, 52.689511024, 1e-6);  // today's value: changes only on purpose
}

TEST(GpuSpeeds, TwiceTheSpeedIsHalfTheTime) {
  const double once = step_ms(some_speeds(), 8, 1), twice = step_ms(some_speeds(2), 8, 1);
  EXPECT_NEAR(twice, once / 2, 1);  // less the time between kernels
}

// Only fp32 products gain, as much as if fp32 itself were that fast.
TEST(GpuSpeeds, Tf32IsForProductsOfFp32) {
  GpuSpeeds fast = some_speeds(), old = some_speeds();
  fast.tflops_fp32 = fast.tflops_tf32;
  old.tflops_tf32 = 0;
  const RunConfig bf16_config = bf16_run(8, 1);
  RunConfig fp32_config = bf16_config;
  fp32_config.train.precision = "fp32";
  const double fp32 = step_ms(some_speeds(), fp32_config);
  const double tf32 = step_ms(some_speeds(), fp32_config, 0, true);
  EXPECT_EQ(tf32, step_ms(fast, fp32_config));
  EXPECT_LT(tf32, fp32 / 2);
  EXPECT_EQ(step_ms(old, fp32_config, 0, true), fp32);  // none was measured
  EXPECT_EQ(step_ms(some_speeds(), bf16_config, 0, true), step_ms(some_speeds(), bf16_config));
}

TEST(GpuSpeeds, PassesAddUpAndTheUpdateDoesNot) {
  const double one = step_ms(some_speeds(), 4, 1), two = step_ms(some_speeds(), 4, 2);
  EXPECT_GT(two, 1.8 * one);
  EXPECT_LT(two, 2.2 * one);  // gradients of several passes are fp32
}

// What cuDNN does not handle takes the built-in kernel's time: only the time of attention's
// products differs, 24 layers of 7 x 8 x 1024 x 1024 x 14 x 64.
TEST(GpuSpeeds, AttentionHasTheSpeedOfItsKernel) {
  const double flops = 24 * 7.0 * 8 * 1024 * 1024 * 14 * 64;
  const auto ms = [&](double tflops) { return flops / tflops * 1e-9; };
  const RunConfig usual = bf16_run(8, 1);
  RunConfig packed = usual, learns = usual, fp32 = usual;
  packed.data.layout = "pack";
  learns.data.mask_padding = false;
  fp32.train.precision = "fp32";
  const GpuSpeeds old = some_speeds(), all = all_speeds();
  EXPECT_EQ(step_ms(all, usual), step_ms(old, usual));
  EXPECT_EQ(step_ms(all, fp32), step_ms(old, fp32));  // was the built-in kernel's before
  EXPECT_NEAR(step_ms(all, packed) - step_ms(old, packed), ms(150) - ms(192), 1e-6);
  EXPECT_NEAR(step_ms(all, learns) - step_ms(old, learns), ms(60) - ms(192), 1e-6);
  for (const RunConfig& c : {usual, packed})
    EXPECT_NEAR(step_ms(all, c, 0.1) - step_ms(old, c, 0.1), ms(40) - ms(192), 1e-6);
  EXPECT_NEAR(step_ms(all, fp32, 0.1) - step_ms(old, fp32, 0.1), ms(8) - ms(11), 1e-6);
  ::setenv("WEFT_CUDNN", "off", 1);
  for (const RunConfig& c : {usual, packed})
    EXPECT_NEAR(step_ms(all, c) - step_ms(old, c), ms(60) - ms(192), 1e-6);
  ::unsetenv("WEFT_CUDNN");
}

TEST(GpuSpeeds, RoundTrip) {
  const std::filesystem::path path = std::filesystem::temp_directory_path() /
                                     ("weft-speeds-" + std::to_string(::getpid()) + ".json");
  EXPECT_FALSE(load_gpu_speeds("", path));
  save_gpu_speeds(some_speeds(), path);
  const auto read = load_gpu_speeds("", path);
  ASSERT_TRUE(read);
  EXPECT_EQ(read->gpu, "some GPU");
  EXPECT_EQ(read->tflops_bf16, 671);
  EXPECT_EQ(read->copy_gb_per_s, 4189);
  EXPECT_EQ(read->tflops_attention_builtin_bf16, 0);  // a file of an earlier weft
  save_gpu_speeds(all_speeds(), path);
  EXPECT_EQ(load_gpu_speeds("", path)->tflops_attention_builtin_bf16, 60);
  EXPECT_EQ(load_gpu_speeds("", path)->tflops_attention_packed_bf16, 150);
  EXPECT_EQ(load_gpu_speeds("", path)->tflops_attention_dropout_fp32, 8);
  EXPECT_EQ(load_gpu_speeds("", path)->tflops_attention_dropout_bf16, 40);
  EXPECT_EQ(read->tflops_tf32, 400);
  EXPECT_TRUE(load_gpu_speeds("some GPU", path));
  EXPECT_FALSE(load_gpu_speeds("another GPU", path));
  GpuSpeeds old = some_speeds();
  old.tflops_tf32 = 0;
  save_gpu_speeds(old, path);
  EXPECT_EQ(read_file(path, 1 << 16).find("tf32"), std::string::npos);  // as older tables are
  ASSERT_TRUE(load_gpu_speeds("", path));
  EXPECT_EQ(load_gpu_speeds("", path)->tflops_tf32, 0);
  Json wrong = gpu_speeds_to_json(some_speeds());
  wrong.set("tflops_tf32", -1);
  std::ofstream(path) << wrong.dump();
  EXPECT_FALSE(load_gpu_speeds("", path));
  std::ofstream(path) << R"({"gpu": "some GPU", "tflops_fp32": -1})";
  EXPECT_FALSE(load_gpu_speeds("", path));
  std::ofstream(path) << "{";
  EXPECT_FALSE(load_gpu_speeds("", path));
  std::ofstream(path) << "";
  EXPECT_FALSE(load_gpu_speeds("", path));
  std::filesystem::remove(path);
  std::filesystem::create_directory(path);  // not a file
  EXPECT_FALSE(load_gpu_speeds("", path));
  EXPECT_FALSE(load_speeds(cpu_kernels().name, path));
  std::filesystem::remove(path);
}

TEST(Repeated, TheBestCountsAndTheSpreadRevealsABusyMachine) {
  EXPECT_EQ(judge({2, 2, 2}).spread, 0);
  EXPECT_EQ(judge({3, 2, 8, 3, 3}).best, 2);
  EXPECT_EQ(judge({3, 2, 8, 3, 3}).spread, 0.5);
  EXPECT_LT(judge({1, 1.02, 1.05, 9}).spread, kBusySpread);  // one outlier is not load
  EXPECT_EQ(judge({}).best, 0);
}

}  // namespace
}  // namespace weft
