// tests/train/gpu_speeds_test.cpp: speeds of a GPU kept in a file, and the step they foretell.
#include "exec/gpu_speeds.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "exec/repeat.h"
#include "exec/speeds.h"
#include "train/engine.h"

namespace weft {
namespace {

GpuSpeeds some_speeds(double factor = 1) {
  return {"some GPU", 50 * factor, 671 * factor, 11 * factor, 192 * factor, 4189 * factor};
}

std::unique_ptr<Model> half_a_billion() {
  return make_model(parse_json(R"({"architectures": ["Qwen2ForCausalLM"], "hidden_size": 896,
      "intermediate_size": 4864, "num_hidden_layers": 24, "num_attention_heads": 14,
      "num_key_value_heads": 2, "vocab_size": 151936, "tie_word_embeddings": true})",
                               "config"),
                    {});
}

double step_ms(const GpuSpeeds& speeds, int64_t rows, int64_t passes) {
  RunConfig c;
  c.data.seq_length = 1024;
  c.train.precision = "bf16";
  c.train.master_weights = false;
  c.train.global_batch = rows * passes;
  c.train.micro_batch = rows;
  const auto model = half_a_billion();
  const auto plans = make_engine_plans(c, *model, Layout{}, 0, cpu_kernels(), 1);
  return estimate_gpu_ms(plans->train, speeds);
}

// An H200 has these speeds and takes 53 ms (benchmarks/results/).
TEST(GpuSpeeds, ForetellAStep) {
  const double ms = step_ms(some_speeds(), 8, 1);
  EXPECT_GT(ms, 53 * 0.85);
  EXPECT_LT(ms, 53 * 1.15);
}

TEST(GpuSpeeds, TwiceTheSpeedIsHalfTheTime) {
  const double once = step_ms(some_speeds(), 8, 1), twice = step_ms(some_speeds(2), 8, 1);
  EXPECT_NEAR(twice, once / 2, 1);  // less the time between kernels
}

TEST(GpuSpeeds, PassesAddUpAndTheUpdateDoesNot) {
  const double one = step_ms(some_speeds(), 4, 1), two = step_ms(some_speeds(), 4, 2);
  EXPECT_GT(two, 1.8 * one);
  EXPECT_LT(two, 2.2 * one);  // gradients of several passes are fp32
}

TEST(GpuSpeeds, AreKeptAndReadAgain) {
  const std::filesystem::path path = std::filesystem::temp_directory_path() /
                                     ("weft-speeds-" + std::to_string(::getpid()) + ".json");
  EXPECT_FALSE(load_gpu_speeds("", path));
  save_gpu_speeds(some_speeds(), path);
  const auto read = load_gpu_speeds("", path);
  ASSERT_TRUE(read);
  EXPECT_EQ(read->gpu, "some GPU");
  EXPECT_EQ(read->tflops_bf16, 671);
  EXPECT_EQ(read->copy_gb_per_s, 4189);
  EXPECT_TRUE(load_gpu_speeds("some GPU", path));
  EXPECT_FALSE(load_gpu_speeds("another GPU", path));
  std::ofstream(path) << R"({"gpu": "some GPU", "tflops_fp32": -1})";
  EXPECT_FALSE(load_gpu_speeds("", path));
  std::ofstream(path) << "{";
  EXPECT_FALSE(load_gpu_speeds("", path));
  std::ofstream(path) << "";
  EXPECT_FALSE(load_gpu_speeds("", path));
  std::filesystem::remove(path);
  std::filesystem::create_directory(path);  // something that is no file
  EXPECT_FALSE(load_gpu_speeds("", path));
  EXPECT_FALSE(load_speeds(cpu_kernels().name, path));
  std::filesystem::remove(path);
}

TEST(Repeated, TheBestCountsAndTheSpreadTellsOfABusyMachine) {
  EXPECT_EQ(judge({2, 2, 2}).spread, 0);
  EXPECT_EQ(judge({3, 2, 8, 3, 3}).best, 2);
  EXPECT_EQ(judge({3, 2, 8, 3, 3}).spread, 0.5);
  EXPECT_LT(judge({1, 1.02, 1.05, 9}).spread, kBusySpread);  // once is no load
  EXPECT_EQ(judge({}).best, 0);
}

}  // namespace
}  // namespace weft
