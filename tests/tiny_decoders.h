// tests/tiny_decoders.h: a tiny config.json of each family, with what sets the family apart.
#pragma once

#include <string>
#include <vector>

#include "base/json.h"

namespace weft::testing {

inline constexpr const char* kTinyQwen3 = R"({
  "architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3",
  "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2,
  "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 12, "vocab_size": 260,
  "max_position_embeddings": 64, "tie_word_embeddings": true, "initializer_range": 0.1})";

inline constexpr const char* kTinyMistral = R"({
  "architectures": ["MistralForCausalLM"], "model_type": "mistral",
  "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2,
  "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 12, "vocab_size": 260,
  "max_position_embeddings": 64, "sliding_window": 5, "initializer_range": 0.1})";

// The second layer slides.
inline constexpr const char* kTinyQwen2Window = R"({
  "architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2",
  "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2,
  "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 260,
  "max_position_embeddings": 64, "use_sliding_window": true, "sliding_window": 5,
  "max_window_layers": 1, "tie_word_embeddings": true, "initializer_range": 0.1})";

// With dropout at its three kinds of sites.
inline constexpr const char* kTinyGpt2 = R"({
  "architectures": ["GPT2LMHeadModel"], "model_type": "gpt2",
  "n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 64, "vocab_size": 260,
  "embd_pdrop": 0.1, "attn_pdrop": 0.2, "resid_pdrop": 0.15, "initializer_range": 0.1})";

// Layers 0 and 2 slide.
inline constexpr const char* kTinyGemma3 = R"({
  "architectures": ["Gemma3ForCausalLM"], "model_type": "gemma3_text",
  "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 3,
  "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 12, "vocab_size": 260,
  "max_position_embeddings": 64, "sliding_window": 5, "sliding_window_pattern": 2,
  "query_pre_attn_scalar": 20, "rope_theta": 1000000.0, "rope_local_base_freq": 10000.0,
  "initializer_range": 0.1})";

// Slopes of both kinds: six heads. With dropout.
inline constexpr const char* kTinyBloom = R"({
  "architectures": ["BloomForCausalLM"], "model_type": "bloom",
  "hidden_size": 48, "n_layer": 2, "n_head": 6, "vocab_size": 260, "hidden_dropout": 0.1,
  "attention_dropout": 0.2, "initializer_range": 0.1})";

struct TinyDecoder {
  const char* name;
  const char* config;
};
inline const std::vector<TinyDecoder>& tiny_decoders() {
  static const std::vector<TinyDecoder> kAll = {
      {"qwen3", kTinyQwen3}, {"mistral", kTinyMistral}, {"qwen2_window", kTinyQwen2Window},
      {"gpt2", kTinyGpt2},   {"gemma3", kTinyGemma3},   {"bloom", kTinyBloom}};
  return kAll;
}

inline Json tiny_decoder(const char* config) { return parse_json(config, "config.json"); }

}  // namespace weft::testing
