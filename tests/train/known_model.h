// tests/train/known_model.h: a model whose every answer is known.
#pragma once

#include <filesystem>
#include <fstream>
#include <map>
#include <vector>

#include "io/safetensors.h"

namespace weft::testing {

inline constexpr int64_t kHidden = 32, kVocab = 300;
inline constexpr int32_t kPadded = 280;  // of the model, not of the bytes tokenizer

// Its layers add nothing, so the next token depends only on the last: x y (280) z ?, and ? after
// all others.
inline void write_known_model(const std::filesystem::path& folder) {
  std::filesystem::create_directories(folder);
  std::ofstream(folder / "config.json") << R"({"architectures": ["LlamaForCausalLM"],
    "model_type": "llama", "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 1,
    "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 300,
    "max_position_embeddings": 16, "rms_norm_eps": 1e-5, "tie_word_embeddings": false,
    "hidden_act": "silu"})";
  const std::map<int32_t, int32_t> next = {{'x', 'y'}, {'y', kPadded}, {kPadded, 'z'}};
  std::vector<float> embedding(kVocab * kHidden), head(kVocab * kHidden);
  for (int32_t id = 0; id < kVocab; ++id) embedding[static_cast<size_t>(id * kHidden + 3)] = 1;
  head[static_cast<size_t>('?' * kHidden + 3)] = 1;
  int32_t dim = 4;
  for (const auto& [from, to] : next) {
    embedding[static_cast<size_t>(from * kHidden + 3)] = 0;
    embedding[static_cast<size_t>(from * kHidden + dim)] = 1;
    head[static_cast<size_t>(to * kHidden + dim++)] = 1;
  }
  const std::vector<float> zeros(48 * kHidden), ones(kHidden, 1.0f);
  std::vector<TensorToWrite> tensors = {
      {"model.embed_tokens.weight", Dtype::kF32, {kVocab, kHidden}, embedding.data()},
      {"lm_head.weight", Dtype::kF32, {kVocab, kHidden}, head.data()},
      {"model.norm.weight", Dtype::kF32, {kHidden}, ones.data()}};
  const std::map<std::string, Shape> layer = {
      {"self_attn.q_proj", {32, 32}},    {"self_attn.k_proj", {16, 32}},
      {"self_attn.v_proj", {16, 32}},    {"self_attn.o_proj", {32, 32}},
      {"mlp.gate_proj", {48, 32}},       {"mlp.up_proj", {48, 32}},
      {"mlp.down_proj", {32, 48}},       {"input_layernorm", {32}},
      {"post_attention_layernorm", {32}}};
  for (const auto& [name, shape] : layer) {
    const auto& values = shape.size() == 1 ? ones : zeros;
    tensors.push_back({"model.layers.0." + name + ".weight", Dtype::kF32, shape, values.data()});
  }
  write_safetensors(folder / "model.safetensors", tensors, {{"format", "pt"}});
}

}  // namespace weft::testing
