// tests/dist/gpu_eval_test.cpp: an evaluation on a GPU, emulated and, where there is one, real.
#include <gtest/gtest.h>

#include <fstream>

#include "base/error.h"
#include "tests/backends.h"
#include "tests/io/temporary_folder.h"
#include "tests/train/known_model.h"
#include "train/evaluate.h"

namespace weft::testing {
namespace {

class GpuEval : public ::testing::TestWithParam<std::tuple<std::string, std::string>> {
 protected:
  void SetUp() override {
    std::ofstream(folder_ / "rows.jsonl") << R"({"q": "hello", "a": "Z is an answer"}
{"q": "a longer question than the one before it", "a": "an answer"}
{"q": "?", "a": ""}
)";
    config_.name = "none";
    config_.storage = folder_.path().string();
    const bool is_llama = std::get<1>(GetParam()) == "llama";
    config_.model.path =
        std::string("tests/golden/data/") + (is_llama ? "tiny_llama" : "qwen2_gqa") + "/model";
    config_.data.train = config_.data.eval = {(folder_ / "rows.jsonl").string()};
    config_.data.tokenizer = "bytes";
    config_.data.source = "{q}";
    config_.data.target = "{a}";
    config_.data.seq_length = 64;
    config_.train.global_batch = 2;
    config_.launch.threads = 1;
    config_.launch.device = "cpu";
  }
  TemporaryFolder folder_;
  RunConfig config_;
};

TEST_P(GpuEval, EqualsTheCpus) {
  const TestBackend found = find_backend(std::get<0>(GetParam()));
  const Backend gpu{found.kernels, found.device, nullptr};
  const EvalReport cpu = evaluate(config_, ""), got = evaluate(config_, "", &gpu);
  EXPECT_GT(cpu.target_tokens, 8);
  EXPECT_EQ(got.target_tokens, cpu.target_tokens);
  EXPECT_NEAR(*got.loss(), *cpu.loss(), 1e-5 * *cpu.loss());
  EXPECT_EQ(got.exact_match, cpu.exact_match);
}

TEST_P(GpuEval, KnownAnswersMatch) {
  write_known_model(folder_ / "model");
  std::ofstream(folder_ / "model/generation_config.json")
      << "{\"eos_token_id\": " << kPadded << "}";
  std::ofstream(folder_ / "rows.jsonl") << R"({"q": "x", "a": "y"}
{"q": "some x", "a": "y"}
{"q": "x", "a": "z"}
{"q": "ax", "a": "y"}
)";
  config_.model.path = (folder_ / "model").string();
  config_.data.seq_length = 12;
  const TestBackend found = find_backend(std::get<0>(GetParam()));
  const Backend gpu{found.kernels, found.device, nullptr};
  EXPECT_EQ(evaluate(config_, "", &gpu).exact_match, 0.75);
}

// Its memory is checked before anything is allocated.
TEST_P(GpuEval, WhatDoesNotFitIsRejected) {
  class Small : public EmulatedDevice {
   public:
    int64_t free_bytes() const override { return 1 << 20; }
    std::byte* allocate(int64_t) override { throw BugError("memory was taken"); }
  } small;
  const Backend gpu{&emulated_kernels(), &small, nullptr};
  EXPECT_THROW(evaluate(config_, "", &gpu), UserError);
}

INSTANTIATE_TEST_SUITE_P(Backends, GpuEval,
                         ::testing::Combine(::testing::ValuesIn(gpu_backend_names()),
                                            ::testing::Values("llama", "qwen2")),
                         [](const auto& c) {
                           return std::get<0>(c.param) + "_" + std::get<1>(c.param);
                         });

}  // namespace
}  // namespace weft::testing
