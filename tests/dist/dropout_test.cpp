// tests/dist/dropout_test.cpp: the dropout mask depends on rows, layers and heads, not on ranks.
#include <fmt/core.h>
#include <gtest/gtest.h>

#include "tests/backends.h"
#include "tests/dist/layouts.h"
#include "train/engine.h"

namespace weft::testing {
namespace {

Json model(double dropout, int kv_heads = 4) {
  Json c = parse_json(R"({"architectures": ["Qwen2ForCausalLM"], "hidden_size": 48,
      "intermediate_size": 56, "num_hidden_layers": 2, "num_attention_heads": 8,
      "vocab_size": 203, "tie_word_embeddings": true, "initializer_range": 0.1})",
                      "config");
  c.set("num_key_value_heads", kv_heads);
  c.set("attention_dropout", dropout);
  return c;
}

MeshRun dropout_run(const char* mode, const char* precision, bool packed = false, int steps = 6,
                    int64_t positions = 40) {
  MeshRun run;
  run.model = model(0.2);
  run.config.train.global_batch = 8;
  run.config.train.precision = precision;
  run.config.train.clip_norm = 0.5;
  run.config.data.seq_length = positions;
  if (packed) run.config.data.layout = "pack";
  run.config.parallel.mode = mode;
  for (int s = 0; s < steps; ++s) {
    run.batches.push_back(random_batch(8, positions, 203, static_cast<uint64_t>(100 + s), packed));
    run.batches.back().epoch = 1 + s / 4;
  }
  run.eval = random_batch(7, positions, 203, 99, packed);
  return run;
}

const std::vector<Place> kDropoutPlaces = {
    {2, 2, "zero3"},   {1, 1, "none", 1},  {2, 1, "none"},     {1, 2, "none"},
    {1, 4, "none", 2}, {2, 1, "zero1", 2}, {4, 1, "zero2", 1}, {2, 1, "zero3", 2}};

std::vector<LayoutRun> dropout_runs() {
  std::vector<LayoutRun> runs;
  for (const char* precision : {"fp32", "bf16"}) {
    for (const bool packed : {false, true}) {
      runs.push_back({fmt::format("dropout_{}{}", precision, packed ? "_packed" : ""),
                      [=] { return dropout_run("exact", precision, packed); }});
    }
  }
  runs.push_back(
      {"dropout_fast", [] { return dropout_run("fast", "fp32"); }, within_absolute(1e-5)});
  return runs;
}
INSTANTIATE_TEST_SUITE_P(Dropout, Layouts,
                         ::testing::ValuesIn(layout_cases(dropout_runs(), kDropoutPlaces)),
                         layout_name);

// Two groups of rows: dp 4 computes rows 0 to 3 in the first pass, not rows 0, 2, 4, 6.
TEST(Dropout, ADpThatOwnsNoGroupsHasTheSameBits) {
  for (const bool packed : {false, true}) {
    MeshRun run = dropout_run("exact", "fp32", packed, 3);
    run.config.parallel.exact_dp = 2;
    const MeshResult one = train_at(run, {1, 1, "none"});
    for (const Place& place : {Place{2, 1, "none"}, {4, 1, "none"}, {4, 1, "zero1"}}) {
      EXPECT_EQ(join(differences(one, train_at(run, place))), "") << text_of(place);
    }
  }
}

// Heads that share a key/value head whose copies are on several ranks.
TEST(Dropout, CopiesOfKeyValueHeadsHaveTheSameBits) {
  MeshRun run = dropout_run("exact", "fp32", false, 3);
  run.model = model(0.3, 2);
  run.config.parallel.exact_tp = 4;
  const MeshResult one = train_at(run, {1, 1, "none"});
  for (const Place& place : {Place{1, 4, "none"}, {2, 2, "zero1"}}) {
    EXPECT_EQ(join(differences(one, train_at(run, place))), "") << text_of(place);
  }
}

// Whatever the mask is keyed by changes it, and nothing else does.
TEST(Dropout, DependsOnSeedEpochAndRow) {
  const MeshRun run = dropout_run("exact", "fp32", false, 2);
  const MeshResult base = train_at(run, {1, 1, "none"});
  EXPECT_EQ(join(differences(base, train_at(run, {1, 1, "none"}))), "");
  const auto expect_other = [&](MeshRun changed, const char* what) {
    EXPECT_NE(train_at(std::move(changed), {1, 1, "none"}).losses[0], base.losses[0]) << what;
  };
  MeshRun changed = run;
  changed.config.seed += 1;
  expect_other(changed, "seed");
  changed = run;
  const auto rows = changed.batches[0].values<int64_t>("rows");
  for (size_t i = 0; i < rows.size(); i += 2) rows[i] += 1;
  expect_other(changed, "epoch");
  changed = run;
  changed.batches[0].values<int64_t>("rows")[2 * 3 + 1] += 1000;
  expect_other(changed, "row");
  changed = run;
  changed.model = model(0.3);
  expect_other(changed, "rate");
}

// Also in a run that trains with it.
TEST(Dropout, EvaluationHasNone) {
  MeshRun with = dropout_run("exact", "fp32", false, 1), without = with;
  without.model = model(0);
  with.lr = without.lr = 0;
  const MeshResult a = train_at(with, {1, 1, "none"}), b = train_at(without, {1, 1, "none"});
  EXPECT_EQ(a.eval_loss, b.eval_loss);
  EXPECT_NE(a.losses[0], b.losses[0]);
}

class DropoutGpu : public ::testing::TestWithParam<std::string> {};

TEST_P(DropoutGpu, ExactModeHasTheSameBitsAndTrainsAsTheCpuDoes) {
  for (const char* precision : {"fp32", "bf16"}) {
    MeshRun run = dropout_run("exact", precision, false, 4, 20);  // eager, captured, replayed
    run.backend = GetParam();
    const MeshResult one = train_at(run, {1, 1, "none", 8});
    for (const Place& place : {Place{1, 1, "none", 4}, {2, 2, "zero3", 4}}) {
      EXPECT_EQ(join(differences(one, train_at(run, place))), "")
          << precision << " " << text_of(place);
    }
    run.backend = "";
    const MeshResult cpu = train_at(run, {1, 1, "none"});
    const double bar = precision == std::string("fp32") ? 1e-5 : 2e-2;
    for (size_t s = 0; s < one.losses.size(); ++s) {
      EXPECT_NEAR(one.losses[s], cpu.losses[s], bar) << precision << " step " << s + 1;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Backends, DropoutGpu, ::testing::ValuesIn(gpu_backend_names()),
                         [](const auto& p) { return p.param; });

}  // namespace
}  // namespace weft::testing
