// tests/dist/fast_test.cpp: fast mode: every layout within its documented tolerance of one rank.
#include <gtest/gtest.h>

#include <cmath>

#include "tests/dist/layouts.h"

namespace weft::testing {
namespace {

// The documented tolerances: fp32 1e-5 per step; bf16 1e-3 in the mean, 5e-3 at most.
constexpr double kMostFp32 = 1e-5, kMeanBf16 = 1e-3, kMostBf16 = 5e-3;

MeshRun fast_run(const char* precision, int steps) {
  MeshRun run;
  run.model = parse_json(R"({"architectures": ["Qwen2ForCausalLM"], "hidden_size": 32,
      "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
      "num_key_value_heads": 2, "vocab_size": 101, "tie_word_embeddings": true,
      "initializer_range": 0.1})",
                         "config");
  run.lr = 1e-4;
  run.config.train.global_batch = 12;
  run.config.train.micro_batch = 2;
  run.config.train.precision = precision;
  run.config.train.master_weights = false;
  run.config.data.seq_length = 400;
  for (int s = 0; s < steps; ++s) {
    run.batches.push_back(random_batch(12, 400, 101, static_cast<uint64_t>(s)));
    // Lengths are uniform; a batch with too few labels is drawn again.
    for (uint64_t again = 1; run.batches.back().target_tokens < 2048; ++again) {
      run.batches.back() = random_batch(12, 400, 101, static_cast<uint64_t>(s) + 1000 * again);
    }
  }
  return run;
}

struct Distance {
  double mean = 0, most = 0;
};

Distance distance(const MeshResult& a, const MeshResult& b) {
  Distance d;
  for (size_t i = 0; i < a.losses.size(); ++i) {
    const double apart = std::abs(a.losses[i] - b.losses[i]);
    d.most = std::max(d.most, apart);
    d.mean += apart / static_cast<double>(a.losses.size());
  }
  return d;
}

// 3 key/value heads on 2 and on 4 ranks: the heads between two ranks exist twice, and their
// gradients are sums of both. Checkpoints know three heads.
MeshRun three_kv_heads_run() {
  MeshRun run = fast_run("fp32", 15);
  run.model.set("hidden_size", 48);
  run.model.set("num_attention_heads", 12);
  run.model.set("num_key_value_heads", 3);
  run.config.data.seq_length = 200;
  for (Batch& b : run.batches)
    b = random_batch(12, 200, 101, static_cast<uint64_t>(b.values("lengths")[0]));
  return run;
}

void expect_same_shapes(const MeshResult& one, const MeshResult& other) {
  within_absolute(kMostFp32, 1e-4)(one, other);
  ASSERT_EQ(other.tensors.size(), one.tensors.size());
  for (const auto& [name, bytes] : one.tensors)
    EXPECT_EQ(other.tensors.at(name).size(), bytes.size()) << name;
}

void expect_bf16_tolerance(const MeshResult& one, const MeshResult& other) {
  const Distance d = distance(one, other);
  EXPECT_LT(d.mean, kMeanBf16);
  EXPECT_LT(d.most, kMostBf16);
}

INSTANTIATE_TEST_SUITE_P(FastFp32, Layouts,
                         ::testing::ValuesIn(layout_cases({{"fast_fp32",
                                                            [] { return fast_run("fp32", 40); },
                                                            within_absolute(kMostFp32, 1e-4),
                                                            {},
                                                            2}},
                                                          {{2, 2, "zero3", 2},
                                                           {2, 1, "none", 2},
                                                           {2, 1, "zero1", 2},
                                                           {2, 1, "zero2", 2},
                                                           {3, 1, "zero3", 2},
                                                           {1, 2, "none", 2},
                                                           {1, 4, "none", 2}})),
                         layout_name);
INSTANTIATE_TEST_SUITE_P(
    FastBf16, Layouts,
    ::testing::ValuesIn(layout_cases(
        {{"fast_bf16", [] { return fast_run("bf16", 40); }, expect_bf16_tolerance, {}, 2}},
        {{2, 2, "none", 2}, {2, 1, "none", 2}, {3, 1, "zero3", 2}})),
    layout_name);
INSTANTIATE_TEST_SUITE_P(
    FastKeyValueHeadsThatTpDoesNotDivide, Layouts,
    ::testing::ValuesIn(layout_cases({{"fast_kv3", three_kv_heads_run, expect_same_shapes, {}, 2}},
                                     {{2, 2, "zero3", 2},
                                      {1, 2, "none", 2},
                                      {1, 2, "none", 12},
                                      {1, 4, "none", 2},
                                      {2, 2, "none", 2},
                                      {2, 2, "zero1", 2},
                                      {2, 2, "zero2", 2},
                                      {2, 4, "zero3", 6}})),
    layout_name);

}  // namespace
}  // namespace weft::testing
