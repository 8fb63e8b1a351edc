// tests/checkpoint/model_fixture.h: one small model, in every kind of storage.
#pragma once

#include <filesystem>
#include <fstream>
#include <list>
#include <map>
#include <string>
#include <vector>

#include "checkpoint/checkpoint.h"
#include "io/safetensors.h"
#include "tests/checkpoint/recut.h"

namespace weft::testing {

inline const std::map<std::string, Shape> kModelShapes = {
    {"model.embed_tokens.weight", {11, 6}},
    {"model.layers.0.mlp.up_proj.weight", {10, 6}},
    {"model.layers.0.mlp.down_proj.weight", {6, 10}},
    {"model.norm.weight", {6}},
};
inline constexpr const char* kModelConfig =
    R"({"architectures": ["LlamaForCausalLM"], "model_type": "llama", "tie_word_embeddings": true,
        "initializer_range": 1.0, "torch_dtype": "float32"})";

// Values differ by tensor; `nudge` is added to the last element of the last.
inline std::map<std::string, std::vector<float>> model_values(float nudge = 0) {
  std::map<std::string, std::vector<float>> values;
  float first = 0.5f;
  for (const auto& [name, shape] : kModelShapes) {
    values[name] = numbered(shape, first);
    first += 1000;
  }
  values.rbegin()->second.back() += nudge;
  return values;
}

// dp x tp ranks, uneven cuts along `dim` (0 for a vector), with states #m and #v. `master`: weights
// as name#master.
inline void store_checkpoint(const std::filesystem::path& folder, int dp, int tp, size_t dim,
                             bool master = false, bool states = true, float nudge = 0) {
  std::mt19937 random(static_cast<unsigned>(dp * 16 + tp));
  const int n = dp * tp;
  std::vector<std::vector<Slice>> ranks(static_cast<size_t>(n));
  std::list<std::vector<float>> buffers;
  auto add = [&](const std::string& name, const Shape& shape, const std::vector<float>& whole) {
    const size_t along = shape.size() == 1 ? 0 : dim;
    const Slice tensor = whole_tensor(name, shape, Dtype::kF32, nullptr);
    const auto slices = cut(tensor, along, random_cuts(shape[along], tp, random), dp, random);
    for (size_t r = 0; r < slices.size(); ++r) {
      buffers.push_back(pick(slices[r], whole));
      ranks[r].push_back(slices[r]);
      ranks[r].back().data = buffers.back().data();
    }
  };
  for (const auto& [name, values] : model_values(nudge)) {
    const Shape& shape = kModelShapes.at(name);
    add(master ? name + "#master" : name, shape, values);
    if (states) add(name + "#m", shape, numbered(shape, 0.25f));
    if (states) add(name + "#v", shape, numbered(shape, 0.125f));
  }
  Json state;
  state.set("step", 12);
  state.set("epoch", 1);
  prepare_checkpoint(folder);
  for (int r = 0; r < n; ++r) {
    write_checkpoint(folder, ranks[static_cast<size_t>(r)], state,
                     {{"config.json", kModelConfig}, {"tokenizer.json", "{}"}}, r, n);
  }
  if (n > 1) commit_checkpoint(folder, n);
}

// As a Hugging Face folder, optionally with the tied head stored a second time.
inline void store_folder(const std::filesystem::path& folder, bool with_head = false) {
  std::filesystem::create_directories(folder);
  std::ofstream(folder / "config.json") << kModelConfig;
  auto values = model_values();
  std::vector<TensorToWrite> tensors;
  for (auto& [name, data] : values) {
    tensors.push_back({name, Dtype::kF32, kModelShapes.at(name), data.data()});
  }
  if (with_head) {
    const auto& embedding = values.at("model.embed_tokens.weight");
    tensors.push_back({"lm_head.weight", Dtype::kF32, {11, 6}, embedding.data()});
  }
  write_safetensors(folder / "model.safetensors", tensors, {{"format", "pt"}});
}

}  // namespace weft::testing
