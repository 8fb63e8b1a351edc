// tests/dist/decoders_test.cpp: every family in several layouts: the same bits in exact mode, the
// same weights in fast mode, and files with Hugging Face's names.
#include <fmt/core.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "checkpoint/export.h"
#include "checkpoint/load.h"
#include "model/load.h"
#include "model/stored.h"
#include "tests/dist/layouts.h"
#include "tests/io/temporary_folder.h"
#include "tests/tiny_decoders.h"

namespace weft::testing {
namespace {

constexpr int64_t kTinyVocab = 260, kTinyPositions = 14;

MeshRun decoder_run(const char* config, const char* mode, const char* precision,
                    bool packed = false) {
  MeshRun run;
  run.model = tiny_decoder(config);
  run.config.train.global_batch = 8;
  run.config.train.precision = precision;
  run.config.data.seq_length = kTinyPositions;
  if (packed) run.config.data.layout = "pack";
  run.config.parallel.mode = mode;
  for (uint64_t s = 0; s < 6; ++s)
    run.batches.push_back(random_batch(8, kTinyPositions, kTinyVocab, 70 + s % 2, packed));
  run.eval = random_batch(7, kTinyPositions, kTinyVocab, 9, packed);
  return run;
}

class Decoders : public ::testing::TestWithParam<TinyDecoder> {};

std::vector<LayoutRun> decoder_exact_runs() {
  std::vector<LayoutRun> runs;
  for (const TinyDecoder& decoder : tiny_decoders()) {
    for (const char* precision : {"fp32", "bf16"}) {
      for (const bool packed : {false, true}) {
        runs.push_back({fmt::format("{}_{}{}", decoder.name, precision, packed ? "_packed" : ""),
                        [=] { return decoder_run(decoder.config, "exact", precision, packed); },
                        expect_same_bits,
                        [](const MeshResult& one) { EXPECT_LT(one.losses[5], one.losses[1]); }});
      }
    }
  }
  return runs;
}
INSTANTIATE_TEST_SUITE_P(Decoders, Layouts,
                         ::testing::ValuesIn(layout_cases(decoder_exact_runs(), {{2, 2, "zero3", 2},
                                                                                 {2, 1, "zero1"},
                                                                                 {1, 2, "none"},
                                                                                 {2, 2, "zero2"}})),
                         layout_name);

std::vector<float> floats_of(const std::vector<std::byte>& bytes) {
  std::vector<float> values(bytes.size() / sizeof(float));
  std::memcpy(values.data(), bytes.data(), bytes.size());
  return values;
}

double farthest(const std::vector<std::byte>& a, const std::vector<std::byte>& b) {
  const std::vector<float> left = floats_of(a), right = floats_of(b);
  double most = 0;
  for (size_t i = 0; i < left.size(); ++i)
    most = std::max(most, std::abs(double{left[i]} - double{right[i]}));
  return most;
}

// SGD: a gradient that lacks a rank's addend, or has one twice, moves the weights elsewhere.
MeshRun decoder_sgd_run(const char* config) {
  MeshRun run = decoder_run(config, "fast", "fp32");
  run.config.train.optimizer.name = "sgd";
  run.lr = 0.1;
  return run;
}

void expect_same_weights(const MeshResult& one, const MeshResult& other) {
  within_absolute(3e-5)(one, other);
  for (const auto& [name, bytes] : one.tensors)
    EXPECT_LT(farthest(bytes, other.tensors.at(name)), 2e-5) << name;
}

std::vector<LayoutRun> decoder_fast_runs() {
  std::vector<LayoutRun> runs;
  for (const TinyDecoder& decoder : tiny_decoders()) {
    runs.push_back({std::string(decoder.name) + "_sgd",
                    [=] { return decoder_sgd_run(decoder.config); }, expect_same_weights});
  }
  return runs;
}
INSTANTIATE_TEST_SUITE_P(DecodersFast, Layouts,
                         ::testing::ValuesIn(layout_cases(decoder_fast_runs(), {{2, 2, "zero3", 2},
                                                                                {1, 2, "none"},
                                                                                {2, 2, "zero1"}})),
                         layout_name);

TEST_P(Decoders, EveryWeightLearns) {
  const MeshRun run = decoder_sgd_run(GetParam().config);
  const MeshResult& one = train_once(std::string(GetParam().name) + "_sgd", run);
  MeshRun start = run;
  start.lr = 0;
  start.batches.resize(1);
  const MeshResult before = train_at(start, {1, 1, "none"});
  for (const auto& [name, bytes] : one.tensors)
    EXPECT_GT(farthest(bytes, before.tensors.at(name)), 1e-4) << name << " did not learn";
}

// A folder written from a checkpoint of four ranks has the parameters of the run, and only the
// tensors that the family's files have.
TEST_P(Decoders, FinalHoldsWhatWasTrained) {
  const TemporaryFolder folder;
  MeshRun run = decoder_run(GetParam().config, "fast", "fp32");
  run.batches.resize(1);
  run.save = folder / "checkpoint";
  const MeshResult trained = train_at(run, {2, 2, "zero3"});
  export_hf(open_logical(run.save.string()).weights, run.model, {}, folder / "final", {});
  const HfFolder written(folder / "final");
  written.open_weights();
  const auto model = make_model(run.model, {});
  const std::vector<ParameterSpec> parameters = model->parameters();
  std::vector<std::string> wanted;
  for (const FileTensor& tensor : file_tensors(parameters)) wanted.push_back(tensor.name);
  std::vector<std::string> names = written.tensor_names();
  std::sort(names.begin(), names.end());
  std::sort(wanted.begin(), wanted.end());
  EXPECT_EQ(names, wanted);
  for (const std::string& name : names) {
    const auto [file, info] = written.find(name);
    const std::vector<std::byte>& bytes = trained.tensors.at(name);
    ASSERT_EQ(static_cast<size_t>(num_elements(info->shape)) * sizeof(float), bytes.size());
    EXPECT_EQ(std::memcmp(file->data(*info), bytes.data(), bytes.size()), 0) << name;
  }
}

INSTANTIATE_TEST_SUITE_P(All, Decoders, ::testing::ValuesIn(tiny_decoders()),
                         [](const auto& c) { return std::string(c.param.name); });

// One rank has half of the heads of q, of k and of v; files have c_attn as one tensor.
TEST(Gpt2Files, CAttnIsOneTensor) {
  const TemporaryFolder folder;
  MeshRun run = decoder_run(kTinyGpt2, "exact", "fp32");
  run.save = folder / "checkpoint";
  const MeshResult at_two = train_at(run, {1, 2, "none"});
  EXPECT_EQ(join(differences(train_at(run, {1, 1, "none"}), at_two)), "");
  const LogicalModel stored = open_logical(run.save.string());
  const auto found = std::find_if(stored.weights.begin(), stored.weights.end(), [](const auto& t) {
    return t.name == "transformer.h.1.attn.c_attn.weight";
  });
  ASSERT_NE(found, stored.weights.end());
  EXPECT_EQ(found->shape, (Shape{32, 96}));
  // k's column 3 of row 2 is column 32 + 3 of the file's row.
  const auto model = make_model(run.model, {});
  for (const ParameterSpec& p : model->parameters()) {
    if (p.name != "transformer.h.1.attn.c_attn.k.weight") continue;
    std::vector<float> k(static_cast<size_t>(num_elements(p.shape)));
    load_parameter(stored, p, Dtype::kF32, k.data());
    float wanted = 0;
    found->read(2 * 96 + 32 + 3, 2 * 96 + 32 + 4, &wanted);
    EXPECT_EQ(k[2 * 32 + 3], wanted);
  }
  // Resumed from the checkpoint of two ranks by one: the same run.
  MeshRun more = run;
  more.save.clear();
  more.resume = run.save;
  more.first_update = 6;
  EXPECT_EQ(join(differences(train_at(more, {1, 1, "none"}), train_at(more, {2, 2, "zero3", 2}))),
            "");
}

// Without the sum over ranks the norms' weights would differ between ranks (kernel/graph tests show
// that the fault is found); here: that they are in the model at all, and learn.
TEST(Qwen3Layouts, NormsOfHeadsAreShared) {
  const auto model = make_model(tiny_decoder(kTinyQwen3), {});
  int shared = 0;
  for (const ParameterSpec& p : model->parameters()) {
    const bool is_norm = p.name.ends_with("q_norm.weight") || p.name.ends_with("k_norm.weight");
    EXPECT_EQ(p.cut.is_shared, is_norm) << p.name;
    shared += is_norm;
  }
  EXPECT_EQ(shared, 4);
}

// A window that is lost in one layout, or in training, is another model.
TEST(WindowLayouts, TheWindowMatters) {
  MeshRun run = decoder_run(kTinyMistral, "exact", "fp32");
  const MeshResult narrow = train_at(run, {1, 2, "none"});
  run.model.set("sliding_window", Json());
  const MeshResult full = train_at(run, {1, 2, "none"});
  EXPECT_NE(join(differences(narrow, full)), "");
  run.model.set("sliding_window", kTinyPositions);  // holds all keys: the bits of none
  EXPECT_EQ(join(differences(full, train_at(run, {1, 2, "none"}))), "");
}

}  // namespace
}  // namespace weft::testing
