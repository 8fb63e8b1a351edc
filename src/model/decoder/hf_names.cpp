// model/decoder/hf_names.cpp: one table; the graph uses these names for parameters, so that files
// need no translation in either direction.
#include "model/decoder/hf_names.h"

#include <fmt/core.h>

namespace weft {

std::string layer_name(int64_t layer, LayerPart part, const char* leaf) {
  constexpr const char* kModules[] = {
      "input_layernorm",  "self_attn.q_proj",         "self_attn.k_proj", "self_attn.v_proj",
      "self_attn.o_proj", "post_attention_layernorm", "mlp.gate_proj",    "mlp.up_proj",
      "mlp.down_proj",    "self_attn.q_norm",         "self_attn.k_norm",
  };
  return fmt::format("model.layers.{}.{}.{}", layer, kModules[static_cast<size_t>(part)], leaf);
}

}  // namespace weft
