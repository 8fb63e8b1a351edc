// model/gemma3_text/config.cpp: defaults of transformers, and rope of two kinds of layers.
#include "model/gemma3_text/config.h"

#include <cmath>

#include "base/error.h"
#include "model/config_fields.h"
#include "model/layer_windows.h"
#include "model/overrides.h"

namespace weft {
namespace {

// transformers 5 writes rope_parameters of each type of layer; 4 wrote rope_theta with
// rope_scaling for layers without a window, rope_local_base_freq for the others.
RopeConfig read_layer_rope(const Json& config, const char* type, const char* theta_key,
                           const char* scaling_key, double theta, int64_t positions) {
  Json fields(Json::Object{});
  if (const Json* all = find_object(config, "rope_parameters")) {
    require(!all->find("rope_type") && !all->find("rope_theta"),
            "config.json: rope_parameters must have an entry for each type of layer: "
            "full_attention and sliding_attention");
    if (const Json* given = find_object(*all, type)) fields = *given;
  }
  if (const Json* scaling = scaling_key ? find_object(config, scaling_key) : nullptr) {
    for (const auto& [key, value] : scaling->as_object()) fields.set(key, value);
  }
  if (!fields.find("rope_theta"))
    fields.set("rope_theta", Json(above_zero_or(config, theta_key, theta)));
  Json named;
  named.set("rope_parameters", std::move(fields));
  refuse_partial_rope(config);
  return read_rope(named, positions);
}

}  // namespace

Gemma3Config read_gemma3_config(const Json& file, const ModelOverrides& overrides) {
  refuse_if_set(
      file, {"final_logit_softcapping", "attn_logit_softcapping", "use_bidirectional_attention"});
  const Json config = with_defaults(file, {{"num_key_value_heads", 4},
                                           {"head_dim", 256},
                                           {"max_position_embeddings", 131072},
                                           {"tie_word_embeddings", true},
                                           {"pad_token_id", 0}});
  Gemma3Config c;
  DecoderConfig& s = c.sizes = read_decoder_sizes(config, "gemma3_text");
  const std::string act = word_or(config, "hidden_activation", "gelu_pytorch_tanh");
  require(act == "gelu_pytorch_tanh" || act == "gelu_new",
          "config.json: hidden_activation \"{}\" is not built; supported: gelu_pytorch_tanh, "
          "gelu_new",
          act);
  const int64_t pattern = positive_or(config, "sliding_window_pattern", kMostLayers, 6);
  s.windows = layer_windows(config, s.num_hidden_layers, sliding_window_or(config, 4096),
                            [&](int64_t layer) { return (layer + 1) % pattern != 0; });
  s.qkv_bias = s.o_bias = flag_or(config, "attention_bias", false);
  s.rope = read_layer_rope(config, "full_attention", "rope_theta", "rope_scaling", 1e6,
                           s.max_position_embeddings);
  c.local_rope = read_layer_rope(config, "sliding_attention", "rope_local_base_freq", nullptr, 1e4,
                                 s.max_position_embeddings);
  c.attention_scale = 1 / std::sqrt(above_zero_or(config, "query_pre_attn_scalar", 256));
  s.num_hidden_layers = layers_in_force(s.num_hidden_layers, overrides);
  s.dropout = dropout_in_force(s.dropout, "attention_dropout", overrides);
  return c;
}

}  // namespace weft
