// tests/dist/sgd_test.cpp: SGD in every layout: the same bits in exact mode; on a GPU as on the
// CPU.
#include <fmt/core.h>
#include <gtest/gtest.h>

#include "tests/backends.h"
#include "tests/dist/layouts.h"

namespace weft::testing {
namespace {

MeshRun sgd_run(const char* precision, double momentum, int steps) {
  MeshRun run;
  run.model = parse_json(R"({"architectures": ["Qwen2ForCausalLM"], "hidden_size": 48,
      "intermediate_size": 88, "num_hidden_layers": 2, "num_attention_heads": 4,
      "num_key_value_heads": 2, "vocab_size": 203, "tie_word_embeddings": true,
      "initializer_range": 0.1})",
                         "config");
  run.config.train.global_batch = 8;
  run.config.train.precision = precision;
  run.config.train.optimizer.name = "sgd";
  run.config.train.optimizer.momentum = momentum;
  run.config.train.clip_norm = 0.5;
  run.config.data.seq_length = 12;
  run.config.parallel.mode = "exact";
  run.lr = 0.1;
  for (int s = 0; s < steps; ++s)
    run.batches.push_back(random_batch(8, 12, 203, static_cast<uint64_t>(100 + s % 4)));
  run.eval = random_batch(7, 12, 203, 99);
  return run;
}

int count_of(const MeshResult& result, const std::string& suffix) {
  int count = 0;
  for (const auto& [name, bytes] : result.tensors) count += name.ends_with(suffix);
  return count;
}

std::vector<LayoutRun> sgd_runs() {
  std::vector<LayoutRun> runs;
  for (const char* precision : {"fp32", "bf16"}) {
    for (const double momentum : {0.9, 0.0}) {
      runs.push_back({fmt::format("sgd_{}{}", precision, momentum > 0 ? "_momentum" : ""),
                      [=] { return sgd_run(precision, momentum, 8); }, expect_same_bits,
                      [=](const MeshResult& one) {
                        EXPECT_LT(one.losses[7], one.losses[3]);  // of one batch
                        EXPECT_EQ(count_of(one, "#momentum") > 0, momentum > 0);
                        EXPECT_EQ(count_of(one, "#m"), 0);
                      }});
    }
  }
  return runs;
}
INSTANTIATE_TEST_SUITE_P(SgdExact, Layouts,
                         ::testing::ValuesIn(layout_cases(sgd_runs(), {{2, 2, "zero3"},
                                                                       {2, 1, "none"},
                                                                       {1, 2, "none"},
                                                                       {2, 1, "zero1"},
                                                                       {2, 1, "zero2", 2}})),
                         layout_name);

TEST(SgdExactControl, AnotherMomentumHasOtherBits) {
  const MeshResult a = train_at(sgd_run("fp32", 0.9, 2), {1, 1, "none"});
  const MeshResult b = train_at(sgd_run("fp32", 0.8, 2), {1, 1, "none"});
  EXPECT_NE(join(differences(a, b)), "");
}

// The list of a GPU, emulated: near the CPU's losses, and its own bits are those of every layout.
TEST(SgdOnAGpu, IsNearTheCpu) {
  for (const auto& [precision, momentum] : {std::pair{"fp32", 0.9}, {"bf16", 0.0}, {"bf16", 0.9}}) {
    MeshRun run = sgd_run(precision, momentum, 3);
    const MeshResult cpu = train_at(run, {1, 1, "none"});
    for (const std::string& backend : gpu_backend_names()) {
      run.backend = backend;
      const MeshResult one = train_at(run, {1, 1, "none"});
      for (size_t s = 0; s < cpu.losses.size(); ++s)
        EXPECT_NEAR(one.losses[s] / cpu.losses[s], 1.0, precision[0] == 'f' ? 1e-5 : 2e-2);
      EXPECT_EQ(join(differences(one, train_at(run, {2, 2, "zero3"}))), "") << backend;
    }
  }
}

}  // namespace
}  // namespace weft::testing
