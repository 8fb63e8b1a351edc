// tests/dist/fused_test.cpp: parameters that are boxes of a stored tensor, through training in
// several layouts, checkpoints, resuming and final/.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <tuple>

#include "base/error.h"
#include "checkpoint/digest.h"
#include "checkpoint/export.h"
#include "checkpoint/load.h"
#include "kernel/cpu/level.h"
#include "model/load.h"
#include "model/stored.h"
#include "tests/dist/fused_decoder.h"
#include "tests/dist/mesh_run.h"
#include "tests/io/temporary_folder.h"
#include "train/engine.h"
#include "train/final_model.h"

namespace weft::testing {
namespace {

constexpr const char* kQkv = "model.layers.1.self_attn.qkv_proj.weight";
constexpr const char* kGateUp = "model.layers.1.mlp.gate_up_proj.weight";

Json plain_config() {
  return parse_json(R"({"architectures": ["LlamaForCausalLM"], "hidden_size": 32,
      "intermediate_size": 56, "num_hidden_layers": 2, "num_attention_heads": 4,
      "num_key_value_heads": 2, "vocab_size": 203, "initializer_range": 0.1})",
                    "config");
}

MeshRun plain_run(const char* precision, int first, int last) {
  MeshRun run;
  run.model = plain_config();
  run.config.train.global_batch = 8;
  run.config.train.precision = precision;
  run.config.data.seq_length = 12;
  run.config.parallel.mode = "exact";
  run.first_update = first;
  for (int s = first; s < last; ++s)
    run.batches.push_back(random_batch(8, 12, 203, static_cast<uint64_t>(40 + s)));
  return run;
}

MeshRun fused(MeshRun run) {
  run.model.set("architectures", Json::Array{"FusedForCausalLM"});
  run.families = kFusedFamilies;
  return run;
}

// The tensors of a plain model, as the fused one's files hold them: rows one after the other.
std::map<std::string, std::vector<std::byte>> fuse(const MeshResult& plain) {
  auto tensors = plain.tensors;
  for (const auto& [name, bytes] : plain.tensors) {
    for (const auto& [first, others, to] :
         {std::tuple{"q_proj", std::vector<std::string>{"k_proj", "v_proj"}, "qkv_proj"},
          std::tuple{"gate_proj", std::vector<std::string>{"up_proj"}, "gate_up_proj"}}) {
      const size_t at = name.find(first);
      if (at == std::string::npos) continue;
      const auto with = [at, name = name, first = first](const std::string& part) {
        return std::string(name).replace(at, std::string(first).size(), part);
      };
      std::vector<std::byte>& all = tensors[with(to)] = bytes;
      tensors.erase(name);
      for (const std::string& other : others) {
        const std::vector<std::byte>& more = plain.tensors.at(with(other));
        all.insert(all.end(), more.begin(), more.end());
        tensors.erase(with(other));
      }
    }
  }
  return tensors;
}

class Fused : public ::testing::TestWithParam<const char*> {};

TEST_P(Fused, TrainsResumesAndHashesAsTheUnfusedModel) {
  const char* precision = GetParam();
  const TemporaryFolder folder;
  const MeshResult plain = train_at(plain_run(precision, 0, 4), {1, 1, "none"});
  const auto wanted = fuse(plain);
  ASSERT_EQ(wanted.count(std::string(kQkv) + "#m"), 1u);

  MeshRun begun = fused(plain_run(precision, 0, 2));
  begun.save = folder / "half";
  train_at(begun, {2, 2, "zero3"});
  std::vector<std::string> hashes;
  for (const Place& place : {Place{1, 1, "none"}, Place{1, 2, "none"}, Place{2, 2, "zero1"}}) {
    MeshRun resumed = fused(plain_run(precision, 2, 4));
    resumed.resume = begun.save;
    resumed.save = folder / fmt::format("end-{}-{}", place.dp, place.tp);
    const MeshResult got = train_at(resumed, place);
    EXPECT_EQ(got.losses, std::vector(plain.losses.begin() + 2, plain.losses.end()));
    EXPECT_EQ(got.norms, std::vector(plain.norms.begin() + 2, plain.norms.end()));
    EXPECT_EQ(got.tensors, wanted) << place.dp << " x " << place.tp;
    const auto digest = digest_model(open_logical(resumed.save.string()));
    hashes.push_back(digest.weights + " " + digest.states);
    EXPECT_EQ(hashes.back(), hashes.front()) << place.dp << " x " << place.tp;
  }
}

INSTANTIATE_TEST_SUITE_P(Precisions, Fused, ::testing::Values("fp32", "bf16"),
                         [](const auto& p) { return std::string(p.param); });

// From a checkpoint of four ranks, and from one rank's memory: the same final/, which both models'
// parameters are read from.
TEST(FusedFiles, FinalHasTheFusedNamesAndShapes) {
  const TemporaryFolder folder;
  MeshRun run = fused(plain_run("fp32", 0, 2));
  run.save = folder / "checkpoint";
  const MeshResult trained = train_at(run, {2, 2, "zero3"});
  const LogicalModel stored = open_logical(run.save.string());
  export_hf(stored.weights, run.model, {}, folder / "final", {});
  const HfFolder final_folder(folder / "final");
  final_folder.open_weights();
  const std::vector<std::string> names = final_folder.tensor_names();
  EXPECT_EQ(std::count(names.begin(), names.end(), kQkv), 1);
  EXPECT_EQ(std::count_if(names.begin(), names.end(),
                          [](const auto& n) { return n.find("q_proj") != std::string::npos; }),
            0);
  EXPECT_EQ(final_folder.find(kQkv).info->shape, (Shape{32 + 2 * 16, 32}));
  EXPECT_EQ(final_folder.find(kGateUp).info->shape, (Shape{2 * 56, 32}));

  const auto model = make_model(run.model, {}, kFusedFamilies);
  for (const ParameterSpec& p : model->parameters()) {
    const auto n = static_cast<size_t>(num_elements(p.shape));
    std::vector<float> from_folder(n), from_checkpoint(n);
    load_parameter(final_folder, p, Dtype::kF32, from_folder.data());
    load_parameter(stored, p, Dtype::kF32, from_checkpoint.data());
    EXPECT_EQ(from_folder, from_checkpoint) << p.name;
    const Portion box = whole_as_stored(p);
    const auto* whole = reinterpret_cast<const float*>(trained.tensors.at(box.name).data());
    EXPECT_EQ(from_folder[n - 1],
              whole[(box.offset[0] + p.shape[0]) * num_elements(p.shape) / p.shape[0] - 1])
        << p.name;
  }
}

TEST(FusedFiles, OneRanksMemoryIsAssembled) {
  MeshRun run = fused(plain_run("bf16", 0, 1));
  run.config.parallel.mode = "fast";
  const auto model = make_model(run.model, {}, kFusedFamilies);
  Ranks alone{Layout{}};
  Engine engine(run.config, *model, &alone, cpu_kernels(), 1);
  engine.init_weights(5);
  const TemporaryFolder folder;
  export_hf(tensors_in_memory(engine.weights().weight_slices()), run.model, {}, folder / "final",
            {});
  const HfFolder written(folder / "final");
  written.open_weights();
  EXPECT_EQ(written.find(kQkv).info->shape, (Shape{64, 32}));
  for (const ParameterSpec& p : model->parameters()) {
    std::vector<float> got(static_cast<size_t>(num_elements(p.shape))), wanted(got.size());
    load_parameter(written, p, Dtype::kF32, got.data());
    initial_values(p, 5, 0, num_elements(p.shape), wanted.data());
    EXPECT_EQ(got, wanted) << p.name;  // keyed by the parameter's own name
  }
  // And back into an engine.
  Engine loaded(run.config, *model, &alone, cpu_kernels(), 1);
  loaded.load_weights(written);
  for (const ParameterSpec& p : model->parameters()) {
    const size_t bytes = static_cast<size_t>(num_elements(p.shape)) * 2;
    EXPECT_EQ(std::memcmp(loaded.parameter(p.name), engine.parameter(p.name), bytes), 0) << p.name;
  }
}

TEST(FusedFiles, FreezingIsByTheStoredName) {
  MeshRun run = fused(plain_run("bf16", 0, 1));
  run.config.model.freeze = {"*.0.self_attn.qkv_proj.weight"};
  const MeshResult got = train_at(run, {2, 1, "zero1"});
  const std::string frozen = "model.layers.0.self_attn.qkv_proj.weight";
  EXPECT_EQ(got.tensors.count(frozen), 1u);  // in the compute type
  EXPECT_EQ(got.tensors.count(frozen + "#m"), 0u);
  EXPECT_EQ(got.tensors.count(std::string(kQkv) + "#m"), 1u);
  run.config.model.freeze = {"*q_proj*"};
  EXPECT_THROW(train_at(run, {1, 1, "none"}), UserError);
}

}  // namespace
}  // namespace weft::testing
