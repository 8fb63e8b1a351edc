// model/decoder/config.cpp: reads config.json with both generations of key names.
#include "model/decoder/config.h"

#include "base/error.h"
#include "model/config_fields.h"
#include "model/decoder/hf_names.h"

namespace weft {
namespace {

// Floating, since the product of fields that are each in range may overflow 64 bits.
void check_count(const DecoderConfig& c) {
  const auto hidden = static_cast<double>(c.hidden_size);
  const auto heads = static_cast<double>(c.num_attention_heads + c.num_key_value_heads);
  const double layer = hidden * (2 * heads * static_cast<double>(c.head_dim) +
                                 3 * static_cast<double>(c.intermediate_size));
  const double tables =
      hidden * static_cast<double>(c.vocab_size) * (c.tie_word_embeddings ? 1 : 2);
  check_parameter_count(
      layer * static_cast<double>(c.num_hidden_layers) + tables,
      fmt::format("hidden_size {}, intermediate_size {}, num_hidden_layers {} and vocab_size {}",
                  c.hidden_size, c.intermediate_size, c.num_hidden_layers, c.vocab_size));
}

}  // namespace

FamilyTraits decoder_traits() {
  return {.is_head_tied = false,
          .head = kHeadName,
          .embeddings = {kEmbedName},
          .layer_keys = {"num_hidden_layers"},
          .size_keys = {"hidden_size", "num_attention_heads", "num_key_value_heads", "head_dim",
                        "intermediate_size"},
          .base_prefix = "model.",
          .stray_ends = {".rotary_emb.inv_freq"}};
}

DecoderConfig read_decoder_sizes(const Json& config, const std::string& family) {
  DecoderConfig c;
  c.family = family;
  c.hidden_size = positive(config, "hidden_size", kMostWidth);
  c.intermediate_size = positive(config, "intermediate_size", kMostInner);
  c.num_hidden_layers = positive(config, "num_hidden_layers", kMostLayers);
  c.num_attention_heads = positive(config, "num_attention_heads", kMostHeads);
  c.num_key_value_heads =
      positive_or(config, "num_key_value_heads", kMostHeads, c.num_attention_heads);
  c.vocab_size = positive(config, "vocab_size", kMostTokens);
  c.max_position_embeddings = positive_or(config, "max_position_embeddings", kMostPositions, 2048);
  c.head_dim = positive_or(config, "head_dim", kMostWidth, c.hidden_size / c.num_attention_heads);
  require(is_given(config, "head_dim") || c.hidden_size % c.num_attention_heads == 0,
          "config.json: num_attention_heads {} does not divide hidden_size {}",
          c.num_attention_heads, c.hidden_size);
  require(c.num_attention_heads % c.num_key_value_heads == 0,
          "config.json: num_key_value_heads {} does not divide num_attention_heads {}",
          c.num_key_value_heads, c.num_attention_heads);
  require(c.head_dim % 2 == 0 && c.head_dim >= 2 && c.head_dim <= 256,
          "config.json: a head dim of {} is not built (even, from 2 to 256)", c.head_dim);
  c.rms_norm_eps = above_zero_or(config, "rms_norm_eps", c.rms_norm_eps);
  c.initializer_range = initializer_or(config, "initializer_range", c.initializer_range);
  c.tie_word_embeddings = flag_or(config, "tie_word_embeddings", false);
  c.dropout = number_or(config, "attention_dropout", 0);
  c.pad_token_id = padding_id(config, c.vocab_size);
  check_count(c);
  return c;
}

DecoderConfig read_decoder_config(const Json& config, const std::string& family) {
  DecoderConfig c = read_decoder_sizes(config, family);
  const Json* act = config.find("hidden_act");
  require(act == nullptr || (act->is_string() && act->as_string() == "silu"),
          "config.json: hidden_act {} is not built; supported: silu", act ? act->dump() : "");
  c.rope = read_rope(config, c.max_position_embeddings);
  return c;
}

}  // namespace weft
