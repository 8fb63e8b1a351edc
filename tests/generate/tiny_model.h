// tests/generate/tiny_model.h: a model of a few thousand random weights.
#pragma once

#include <memory>

#include "base/json.h"
#include "model/model.h"

namespace weft::testing {

// Grouped heads, biases on q, k, v, two layers, 96 positions. Weights are large, so that the next
// token depends on all tokens before it.
inline std::unique_ptr<Model> tiny_model() {
  return make_model(parse_json(R"({"architectures": ["Qwen2ForCausalLM"], "hidden_size": 32,
      "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4,
      "num_key_value_heads": 2, "vocab_size": 61, "max_position_embeddings": 96,
      "initializer_range": 0.4, "tie_word_embeddings": true})",
                               "tiny config"),
                    {});
}

inline void load_random(const ParameterSpec& spec, Dtype dtype, void* data) {
  for (int64_t i = 0; i < num_elements(spec.shape); ++i) {
    store_element(data, dtype, i, initial_element(spec, 7, i));
  }
}

}  // namespace weft::testing
