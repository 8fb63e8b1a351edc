// model/t5/config.cpp: v1.0 and v1.1 differ in the feed-forward's form and in the head.
#include "model/t5/config.h"

#include "base/error.h"
#include "graph/ops/attention.h"
#include "model/config_fields.h"
#include "model/family.h"
#include "model/overrides.h"

namespace weft {
namespace {

constexpr int64_t kMostDistance = 1 << 20;

// Counts a block of the encoder as one of the decoder, and a gate and a head in any case.
void check_count(const T5Config& c) {
  const int64_t rows =
      (c.num_layers + c.num_decoder_layers) * (8 * c.num_heads * c.d_kv + 3 * c.d_ff) +
      2 * c.vocab_size;
  check_parameter_count(static_cast<double>(c.d_model) * static_cast<double>(rows),
                        fmt::format("d_model {}, d_ff {}, num_layers {} and vocab_size {}",
                                    c.d_model, c.d_ff, c.num_layers, c.vocab_size));
}

// transformers derives both from feed_forward_proj, and ignores the file's: whoever changed one
// expects another model.
void check_derived(const Json& config, const std::string& kind, bool is_gated) {
  const std::string wanted = is_gated ? "gelu_new" : "relu";
  const std::string act = word_or(config, "dense_act_fn", wanted);
  require(act == wanted, "config.json: dense_act_fn is {}, but feed_forward_proj {} means {}", act,
          kind, wanted);
  require(flag_or(config, "is_gated_act", is_gated) == is_gated,
          "config.json: is_gated_act is {}, but feed_forward_proj {} means {}", !is_gated, kind,
          is_gated);
}

bool read_is_gated(const Json& config) {
  const std::string kind = word_or(config, "feed_forward_proj", "relu");
  require(kind == "relu" || kind == "gated-gelu",
          "config.json: feed_forward_proj {} is not built; supported: relu, gated-gelu", kind);
  const bool is_gated = kind == "gated-gelu";
  check_derived(config, kind, is_gated);
  return is_gated;
}

}  // namespace

T5Config read_t5_config(const Json& config, const ModelOverrides& overrides) {
  refuse_if_set(config, {"tie_encoder_decoder"});
  T5Config c;
  c.d_model = positive(config, "d_model", kMostWidth);
  c.d_kv = positive(config, "d_kv", kMostWidth);
  c.d_ff = positive(config, "d_ff", kMostInner);
  c.num_heads = positive(config, "num_heads", kMostHeads);
  c.vocab_size = positive(config, "vocab_size", kMostTokens);
  const int64_t layers = positive(config, "num_layers", kMostLayers);
  c.num_layers = layers_in_force(layers, overrides);
  c.num_decoder_layers =
      layers_in_force(positive_or(config, "num_decoder_layers", kMostLayers, layers), overrides);
  c.num_buckets =
      positive_or(config, "relative_attention_num_buckets", kMostRelativeBuckets, c.num_buckets);
  c.max_distance =
      positive_or(config, "relative_attention_max_distance", kMostDistance, c.max_distance);
  require(c.num_buckets % 2 == 0 && c.num_buckets >= 4 && c.max_distance > c.num_buckets / 2,
          "config.json: relative_attention_num_buckets is {}, wanted an even number from 4, less "
          "than twice the relative_attention_max_distance of {}",
          c.num_buckets, c.max_distance);
  require(c.d_kv <= 256, "config.json: a d_kv of {} is not built (up to 256)", c.d_kv);
  c.layer_norm_eps = above_zero_or(config, "layer_norm_epsilon", c.layer_norm_eps);
  c.initializer_factor = initializer_or(config, "initializer_factor", c.initializer_factor);
  c.dropout =
      dropout_in_force(number_or(config, "dropout_rate", c.dropout), "dropout_rate", overrides);
  c.is_gated = read_is_gated(config);
  require(flag_or(config, "is_encoder_decoder", true),
          "config.json: is_encoder_decoder false is not built: T5 has an encoder and a decoder");
  c.start_id = decoder_start_id(config);
  // transformers 4 wrote tie_word_embeddings: false for both; 5 writes scale_decoder_outputs, and
  // leaves the head to the files (model/head_in_files.h).
  c.has_separate_head = !flag_or(config, "tie_word_embeddings", true);
  c.is_output_scaled = flag_or(config, "scale_decoder_outputs", !c.has_separate_head);
  check_count(c);
  return c;
}

const FamilyTraits& t5_traits() {
  static const FamilyTraits kTraits{
      .embeddings = {"shared.weight"},
      .layer_keys = {"num_layers", "num_decoder_layers", "num_hidden_layers"},
      .size_keys = {"d_model", "hidden_size", "num_heads", "num_attention_heads", "d_kv", "d_ff"},
      // Of cross attention, which old files have and nothing reads.
      .stray_ends = {"decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.weight"},
      .embedding_copies = {"encoder.embed_tokens.weight", "decoder.embed_tokens.weight"},
      .is_head_decided_by_files = true,
      // transformers keeps the feed-forward's wo in fp32 and clamps infinities; nothing here does.
      .overflows_fp16 = true,
      .scale_key = "scale_decoder_outputs"};
  return kTraits;
}

}  // namespace weft
