// model/decoder/config.cpp: reads config.json with both generations of key names.
#include "model/decoder/config.h"

#include <cmath>

#include "base/error.h"

namespace weft {
namespace {

// Far beyond any existing model, and small enough that no byte count overflows 64 bits: a
// config.json beyond this is damaged, and must not be planned for minutes.
constexpr int64_t kMostLayers = 1024;  // planning time is quadratic in them: 2 s for 1024
constexpr int64_t kMostWidth = int64_t{1} << 20;  // hidden_size
constexpr int64_t kMostInner = int64_t{1} << 22;  // intermediate_size
constexpr int64_t kMostHeads = int64_t{1} << 16;
constexpr int64_t kMostTokens = int64_t{1} << 24;  // vocab_size
constexpr int64_t kMostPositions = (int64_t{1} << 31) - 1;
constexpr double kMostParameters = 0x1p44;

int64_t positive(const Json& config, const char* key, int64_t most) {
  const Json* v = config.find(key);
  require(v != nullptr, "config.json has no \"{}\"", key);
  require(v->is_int() && v->as_int() > 0 && v->as_int() <= most,
          "config.json: \"{}\" must be a positive whole number up to {}, got {}", key, most,
          v->dump());
  return v->as_int();
}

int64_t positive_or(const Json& config, const char* key, int64_t most, int64_t otherwise) {
  const Json* v = config.find(key);
  return v == nullptr || v->is_null() ? otherwise : positive(config, key, most);
}

// The weight matrices; floating, since the product of fields that are each in range may overflow 64
// bits.
void check_parameter_count(const DecoderConfig& c) {
  const auto hidden = static_cast<double>(c.hidden_size);
  const auto heads = static_cast<double>(c.num_attention_heads + c.num_key_value_heads);
  const double layer = hidden * (2 * heads * static_cast<double>(c.head_dim) +
                                 3 * static_cast<double>(c.intermediate_size));
  const double tables =
      hidden * static_cast<double>(c.vocab_size) * (c.tie_word_embeddings ? 1 : 2);
  const double all = layer * static_cast<double>(c.num_hidden_layers) + tables;
  if (all <= kMostParameters) return;
  throw UserError(
      fmt::format("config.json: hidden_size {}, intermediate_size {}, num_hidden_layers {} and "
                  "vocab_size {} make {:.3g} parameters, more than weft's limit of {:.3g}",
                  c.hidden_size, c.intermediate_size, c.num_hidden_layers, c.vocab_size, all,
                  kMostParameters),
      "no model is that large: look for a mistyped number in config.json");
}

double number_or(const Json& config, const char* key, double otherwise) {
  const Json* v = config.find(key);
  if (v == nullptr || v->is_null()) return otherwise;
  require(v->is_number(), "config.json: \"{}\" must be a number, got {}", key, v->dump());
  require(std::isfinite(static_cast<float>(v->as_number())),
          "config.json: \"{}\" must be a number in fp32's range, got {}", key, v->dump());
  return v->as_number();
}

// 0 or less would produce NaN: the root of zero, a power of a negative number. Kernels use fp32, in
// which 1e-60 is 0.
double above_zero_or(const Json& config, const char* key, double otherwise) {
  const double v = number_or(config, key, otherwise);
  require(static_cast<float>(v) > 0, "config.json: \"{}\" must be above 0, got {}", key, v);
  return v;
}

bool flag_or(const Json& config, const char* key, bool otherwise) {
  const Json* v = config.find(key);
  if (v == nullptr || v->is_null()) return otherwise;
  require(v->is_bool(), "config.json: \"{}\" must be true or false, got {}", key, v->dump());
  return v->as_bool();
}

void refuse_sliding_window(const Json& config) {
  const char* hint = "set use_sliding_window to false in config.json if the rows fit the window";
  if (flag_or(config, "use_sliding_window", false)) {
    throw UserError("config.json: use_sliding_window: sliding-window attention is not built", hint);
  }
  if (const Json* types = config.find("layer_types"); types && types->is_array()) {
    for (const Json& type : types->as_array()) {
      if (type.is_string() && type.as_string() == "full_attention") continue;
      throw UserError(fmt::format("config.json: layer_types holds {}: only full_attention is built",
                                  type.dump()),
                      hint);
    }
  }
}

RopeConfig read_rope(const Json& config) {
  RopeConfig rope;
  // transformers 5 writes all of it into rope_parameters; 4 wrote rope_theta next to rope_scaling.
  const Json* fields = config.find("rope_parameters");
  if (fields == nullptr || !fields->is_object()) fields = config.find("rope_scaling");
  rope.theta = above_zero_or(config, "rope_theta", rope.theta);
  if (fields == nullptr || !fields->is_object()) return rope;
  rope.theta = above_zero_or(*fields, "rope_theta", rope.theta);
  const Json* type = fields->find("rope_type");
  if (type == nullptr) type = fields->find("type");
  if (type != nullptr && type->is_string()) rope.type = type->as_string();
  require(rope.type == "default" || rope.type == "linear" || rope.type == "llama3",
          "config.json: rope type \"{}\" is not built; supported: default, linear, llama3",
          rope.type);
  require(number_or(*fields, "partial_rotary_factor", 1) == 1,
          "config.json: partial_rotary_factor other than 1 is not built");
  if (rope.type == "default") return rope;
  require(fields->find("factor") != nullptr, "config.json: rope type {} needs \"factor\"",
          rope.type);
  rope.factor = above_zero_or(*fields, "factor", 1);
  rope.low_freq_factor = above_zero_or(*fields, "low_freq_factor", rope.low_freq_factor);
  rope.high_freq_factor = number_or(*fields, "high_freq_factor", rope.high_freq_factor);
  rope.original_max_position_embeddings = above_zero_or(*fields, "original_max_position_embeddings",
                                                        rope.original_max_position_embeddings);
  require(rope.type != "llama3" || rope.high_freq_factor > rope.low_freq_factor,
          "config.json: rope high_freq_factor {} must exceed low_freq_factor {}",
          rope.high_freq_factor, rope.low_freq_factor);
  return rope;
}

}  // namespace

DecoderConfig read_decoder_config(const Json& config, const std::string& family) {
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
  require(config.find("head_dim") || c.hidden_size % c.num_attention_heads == 0,
          "config.json: num_attention_heads {} does not divide hidden_size {}",
          c.num_attention_heads, c.hidden_size);
  require(c.num_attention_heads % c.num_key_value_heads == 0,
          "config.json: num_key_value_heads {} does not divide num_attention_heads {}",
          c.num_key_value_heads, c.num_attention_heads);
  require(c.head_dim % 2 == 0 && c.head_dim <= 256,
          "config.json: a head dim of {} is not built (even, up to 256)", c.head_dim);
  c.rms_norm_eps = above_zero_or(config, "rms_norm_eps", c.rms_norm_eps);
  c.initializer_range = number_or(config, "initializer_range", c.initializer_range);
  require(c.initializer_range >= 0,
          "config.json: \"initializer_range\" is a standard deviation, at least 0; got {}",
          c.initializer_range);
  c.tie_word_embeddings = flag_or(config, "tie_word_embeddings", false);
  c.dropout = number_or(config, "attention_dropout", 0);
  const Json* pad = config.find("pad_token_id");
  if (pad != nullptr && pad->is_int()) c.pad_token_id = pad->as_int();
  require(c.pad_token_id < c.vocab_size, "config.json: pad_token_id {} is not below vocab_size {}",
          c.pad_token_id, c.vocab_size);
  const Json* act = config.find("hidden_act");
  require(act == nullptr || (act->is_string() && act->as_string() == "silu"),
          "config.json: hidden_act {} is not built; supported: silu", act ? act->dump() : "");
  check_parameter_count(c);
  refuse_sliding_window(config);
  c.rope = read_rope(config);
  return c;
}

}  // namespace weft
