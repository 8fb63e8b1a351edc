// model/bloom/config.cpp: fields under BLOOM's names and those of other families.
#include "model/bloom/config.h"

#include "base/error.h"
#include "graph/ops/attention.h"
#include "model/config_fields.h"
#include "model/overrides.h"

namespace weft {
namespace {

void check_count(const BloomConfig& c) {
  const auto hidden = static_cast<double>(c.hidden_size);
  const double tables = static_cast<double>(c.vocab_size) * (c.tie_word_embeddings ? 1 : 2);
  check_parameter_count(hidden * (12 * hidden * static_cast<double>(c.num_layers) + tables),
                        fmt::format("hidden_size {}, n_layer {} and vocab_size {}", c.hidden_size,
                                    c.num_layers, c.vocab_size));
}

}  // namespace

BloomConfig read_bloom_config(const Json& config, const ModelOverrides& overrides) {
  BloomConfig c;
  const auto size = [&](const char* key, const char* other, int64_t most) {
    return positive(config, named(config, key, other), most);
  };
  c.hidden_size = size("hidden_size", "n_embed", kMostWidth);
  c.num_heads = size("n_head", "num_attention_heads", kMostHeadsOfAlibi);
  c.num_layers = layers_in_force(size("n_layer", "num_hidden_layers", kMostLayers), overrides);
  c.vocab_size = positive(config, "vocab_size", kMostTokens);
  require(c.hidden_size % c.num_heads == 0, "config.json: n_head {} does not divide hidden_size {}",
          c.num_heads, c.hidden_size);
  c.head_dim = c.hidden_size / c.num_heads;
  require(c.head_dim <= 256, "config.json: a head dim of {} is not built (up to 256)", c.head_dim);
  c.layer_norm_eps = above_zero_or(config, "layer_norm_epsilon", c.layer_norm_eps);
  c.initializer_range = initializer_or(config, "initializer_range", c.initializer_range);
  const auto rate = [&](const char* key) {
    return dropout_in_force(number_or(config, key, 0), key, overrides);
  };
  c.hidden_dropout = rate("hidden_dropout");
  c.attention_dropout = rate("attention_dropout");
  // It would leave out the biases of the projections that it computes in slices.
  require(
      !flag_or(config, "slow_but_exact", false) ||
          positive_or(config, "pretraining_tp", kMostHeads, 1) == 1,
      "config.json: slow_but_exact with a pretraining_tp above 1 is not built; set it to false");
  c.is_residual_normed = flag_or(config, "apply_residual_connection_post_layernorm", false);
  c.tie_word_embeddings = flag_or(config, "tie_word_embeddings", true);
  check_count(c);
  return c;
}

}  // namespace weft
