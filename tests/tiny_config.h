// tests/tiny_config.h: config.json of the smallest model that whole runs of the tests train.
#pragma once

namespace weft::testing {

inline constexpr const char* kTinyConfig = R"({
  "architectures": ["LlamaForCausalLM"], "model_type": "llama",
  "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2,
  "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 260,
  "max_position_embeddings": 64, "rms_norm_eps": 1e-5, "tie_word_embeddings": true,
  "initializer_range": 0.05, "hidden_act": "silu"})";

}  // namespace weft::testing
