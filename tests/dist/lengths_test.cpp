// tests/dist/lengths_test.cpp: packed and dynamic batches and learned padding over the mesh.
#include <fmt/core.h>
#include <gtest/gtest.h>

#include "tests/dist/layouts.h"

namespace weft::testing {
namespace {

// Lengths change from step to step; in `pack` rows have segments, in `padding` it is learned.
MeshRun lengths_run(const char* layout, const char* precision, const char* mode) {
  MeshRun run;
  run.model = parse_json(R"({"architectures": ["Qwen2ForCausalLM"], "hidden_size": 48,
      "intermediate_size": 88, "num_hidden_layers": 2, "num_attention_heads": 12,
      "num_key_value_heads": 4, "vocab_size": 1003, "tie_word_embeddings": true,
      "initializer_range": 0.1})",
                         "config");
  run.config.train.global_batch = 8;
  run.config.train.precision = precision;
  run.config.train.clip_norm = 0.5;
  run.config.data.seq_length = 48;
  const bool learns_padding = std::string(layout) == "padding";
  run.config.data.layout = learns_padding ? "pad" : layout;
  run.config.data.mask_padding = !learns_padding;
  run.config.parallel.mode = mode;
  const bool packs = std::string(layout) == "pack", is_dynamic = std::string(layout) == "dynamic";
  for (int s = 0; s < 4; ++s) {
    const int64_t length = is_dynamic ? 16 * (1 + s % 3) : 48;
    run.batches.push_back(random_batch(8, length, 1003, static_cast<uint64_t>(100 + s), packs));
  }
  run.eval = random_batch(7, is_dynamic ? 32 : 48, 1003, 99, packs);
  if (!learns_padding) return run;
  for (Batch& b : run.batches) learn_padding(&b);
  learn_padding(&run.eval);
  return run;
}

std::vector<LayoutRun> lengths_runs(const char* mode, const Compare& same) {
  std::vector<LayoutRun> runs;
  for (const char* layout : {"pack", "dynamic", "padding"}) {
    for (const char* precision : {"fp32", "bf16"}) {
      if (std::string(mode) == "fast" && std::string(precision) == "bf16") continue;
      runs.push_back({fmt::format("{}_{}_{}", layout, mode, precision),
                      [=] { return lengths_run(layout, precision, mode); }, same});
    }
  }
  return runs;
}

const std::vector<Place> kLengthsPlaces = {{2, 2, "zero3"},    {2, 1, "none"},  {4, 1, "zero1", 2},
                                           {2, 1, "zero2", 2}, {4, 1, "zero3"}, {1, 4, "none"}};
const std::vector<Place> kFastLengthsPlaces = {
    {2, 2, "zero3"}, {2, 1, "none"}, {4, 1, "zero1", 2}, {2, 1, "zero2", 2},
    {4, 1, "zero3"}, {1, 4, "none"}, {2, 1, "zero1"},    {4, 1, "none"}};

INSTANTIATE_TEST_SUITE_P(LengthsExact, Layouts,
                         ::testing::ValuesIn(layout_cases(lengths_runs("exact", expect_same_bits),
                                                          kLengthsPlaces)),
                         layout_name);
INSTANTIATE_TEST_SUITE_P(
    LengthsFast, Layouts,
    ::testing::ValuesIn(layout_cases(lengths_runs("fast", within({.loss = 2e-5, .eval = 2e-5})),
                                     kFastLengthsPlaces)),
    layout_name);

// Negative control: with positions of a single segment it is a different training.
TEST(LengthsControl, SegmentsMatter) {
  MeshRun run = lengths_run("pack", "fp32", "exact");
  const MeshResult packed = train_at(run, {2, 1, "none"});
  for (Batch& b : run.batches) {
    const auto positions = b.values("positions");
    for (size_t i = 0; i < positions.size(); ++i) positions[i] = static_cast<int32_t>(i % 48);
  }
  EXPECT_NE(join(differences(packed, train_at(run, {2, 1, "none"}))), "");
}

// Negative control: with padding whose queries see nothing it is a different training.
TEST(LengthsControl, PaddingAttends) {
  MeshRun run = lengths_run("padding", "fp32", "exact");
  const MeshResult attends = train_at(run, {2, 1, "none"});
  run.config.data.mask_padding = true;
  EXPECT_NE(join(differences(attends, train_at(run, {2, 1, "none"}))), "");
}

}  // namespace
}  // namespace weft::testing
