// tests/generate/tiny_model.h: a model of a few thousand random weights.
#pragma once

#include <memory>
#include <vector>

#include "base/json.h"
#include "base/random.h"
#include "model/model.h"

namespace weft::testing {

// Grouped heads, biases on q, k, v (Qwen2), two layers, 96 positions. Weights are large, so that
// the next token depends on all tokens before it.
inline std::unique_ptr<Model> tiny_model(const char* architecture = "Qwen2ForCausalLM",
                                         bool is_tied = true) {
  Json config = parse_json(R"({"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2,
      "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 61,
      "max_position_embeddings": 96, "initializer_range": 0.4})",
                           "tiny config");
  config.set("architectures", Json(Json::Array{Json(architecture)}));
  config.set("tie_word_embeddings", Json(is_tied));
  return make_model(config, {});
}

inline void load_random(const ParameterSpec& spec, Dtype dtype, void* data) {
  for (int64_t i = 0; i < num_elements(spec.shape); ++i) {
    store_element(data, dtype, i, initial_element(spec, 7, i));
  }
}

// Of 1 to 70 tokens.
inline std::vector<std::vector<int32_t>> make_prompts(size_t count) {
  std::vector<std::vector<int32_t>> prompts(count);
  for (size_t i = 0; i < count; ++i) {
    const size_t length = 1 + philox(5, i, 0)[0] % (i % 3 == 0 ? 70 : 9);
    for (size_t t = 0; t < length; ++t) {
      prompts[i].push_back(static_cast<int32_t>(philox(6, i, t)[0] % 61));
    }
  }
  return prompts;
}

}  // namespace weft::testing
