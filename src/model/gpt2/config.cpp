// model/gpt2/config.cpp: fields under GPT-2's names, or those of other families.
#include "model/gpt2/config.h"

#include "base/error.h"
#include "model/config_fields.h"
#include "model/overrides.h"

namespace weft {
namespace {

void check_count(const Gpt2Config& c) {
  const auto width = static_cast<double>(c.n_embd);
  const double layer = width * (4 * width + 2 * static_cast<double>(c.n_inner));
  const double tables = static_cast<double>(c.vocab_size) * (c.tie_word_embeddings ? 1 : 2) +
                        static_cast<double>(c.n_positions);
  check_parameter_count(layer * static_cast<double>(c.n_layer) + width * tables,
                        fmt::format("n_embd {}, n_inner {}, n_layer {}, n_positions {} and "
                                    "vocab_size {}",
                                    c.n_embd, c.n_inner, c.n_layer, c.n_positions, c.vocab_size));
}

bool is_exact_gelu(const Json& config) {
  const std::string name = word_or(config, "activation_function", "gelu_new");
  require(name == "gelu_new" || name == "gelu_pytorch_tanh" || name == "gelu",
          "config.json: activation_function \"{}\" is not built; supported: gelu_new, "
          "gelu_pytorch_tanh, gelu",
          name);
  return name == "gelu";
}

}  // namespace

Gpt2Config read_gpt2_config(const Json& config, const ModelOverrides& overrides) {
  refuse_if_set(config, {"scale_attn_by_inverse_layer_idx", "reorder_and_upcast_attn",
                         "add_cross_attention"});
  Gpt2Config c;
  const auto size = [&](const char* key, const char* other, int64_t most) {
    return positive(config, named(config, key, other), most);
  };
  c.n_embd = size("n_embd", "hidden_size", kMostWidth);
  c.n_head = size("n_head", "num_attention_heads", kMostHeads);
  c.n_layer = layers_in_force(size("n_layer", "num_hidden_layers", kMostLayers), overrides);
  c.n_positions = size("n_positions", "max_position_embeddings", kMostPositions);
  c.n_inner = positive_or(config, "n_inner", kMostInner, 4 * c.n_embd);
  c.vocab_size = positive(config, "vocab_size", kMostTokens);
  require(c.n_embd % c.n_head == 0, "config.json: n_head {} does not divide n_embd {}", c.n_head,
          c.n_embd);
  require(c.head_dim() <= 256, "config.json: a head dim of {} is not built (up to 256)",
          c.head_dim());
  c.layer_norm_epsilon = above_zero_or(config, "layer_norm_epsilon", c.layer_norm_epsilon);
  c.initializer_range = initializer_or(config, "initializer_range", c.initializer_range);
  const auto rate = [&](const char* key, double otherwise) {
    return dropout_in_force(number_or(config, key, otherwise), key, overrides);
  };
  c.embd_pdrop = rate("embd_pdrop", c.embd_pdrop);
  c.attn_pdrop = rate("attn_pdrop", c.attn_pdrop);
  c.resid_pdrop = rate("resid_pdrop", c.resid_pdrop);
  c.has_exact_gelu = is_exact_gelu(config);
  c.scale_attn_weights = flag_or(config, "scale_attn_weights", true);
  c.tie_word_embeddings = flag_or(config, "tie_word_embeddings", true);
  check_count(c);
  return c;
}

}  // namespace weft
