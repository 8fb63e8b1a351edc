// model/bloom/model.cpp: BLOOM: ALiBi, q, k and v of a head in one run of columns, norms with
// biases.
#include <fmt/core.h>

#include <algorithm>

#include "graph/builder.h"
#include "graph/ops/dropout.h"
#include "graph/ops/embedding.h"
#include "graph/ops/gelu.h"
#include "graph/ops/layernorm.h"
#include "graph/ops/linear.h"
#include "model/bloom/config.h"
#include "model/config_fields.h"
#include "model/family.h"
#include "model/name_part.h"
#include "model/text_inputs.h"
#include "model/traced_attention.h"
#include "model/traced_head.h"
#include "model/traced_inputs.h"
#include "model/traced_parameters.h"
#include "tensor/names.h"

namespace weft {
namespace {

constexpr const char* kBloomEmbedName = "transformer.word_embeddings.weight";
constexpr const char* kBloomHeadName = "lm_head.weight";

class BloomTracer {
 public:
  BloomTracer(const BloomConfig& config, Graph* graph, const TraceOptions& options,
              const std::vector<InputSpec>& inputs)
      : c_(config), o_(options), g_(graph, options.compute), in_(&g_, inputs, options) {
    embed_ = g_.parameter(kBloomEmbedName, {c_.vocab_size, c_.hidden_size});
  }

  // The losses, or in generation the logits.
  Ref result() {
    const Ref y = layers();
    return trace_head(g_, in_, o_, y, head());
  }

 private:
  ops::Normed norm(Ref x, Ref residual, const std::string& name) {
    const Ref weight = g_.parameter(name + ".weight", {c_.hidden_size});
    const Ref bias = g_.parameter(name + ".bias", {c_.hidden_size});
    return ops::layernorm(g_, x, residual, weight, bias, static_cast<float>(c_.layer_norm_eps));
  }

  Ref linear(Ref x, const std::string& name, int64_t out, int64_t in) {
    const Ref weight = g_.parameter(name + ".weight", {out, in});
    const Ref bias = g_.parameter(name + ".bias", {out});
    return ops::linear(g_, x, {weight}, {bias});
  }

  Ref layers() {
    const Ref embedded = ops::embedding(g_, in_[names::kIds], embed_, -1);
    Ref x = norm(embedded, {}, "transformer.word_embeddings_layernorm").y;
    g_.set_layer(0);
    Ref y = norm(x, {}, "transformer.h.0.input_layernorm").y;
    for (int64_t i = 0; i < c_.num_layers; ++i) {
      g_.set_layer(static_cast<int>(i));
      const std::string layer = fmt::format("transformer.h.{}.", i);
      const Ref attended = attention(layer, i, y);
      const auto middle =
          norm(attended, c_.is_residual_normed ? y : x, layer + "post_attention_layernorm");
      const Ref fed = feed_forward(layer, i, middle.y);
      const bool is_last = i + 1 == c_.num_layers;
      const auto out = norm(fed, c_.is_residual_normed ? middle.y : middle.sum,
                            is_last ? std::string("transformer.ln_f")
                                    : fmt::format("transformer.h.{}.input_layernorm", i + 1));
      x = out.sum;
      y = out.y;
    }
    g_.set_layer(-1);
    return y;
  }

  Ref attention(const std::string& layer, int64_t i, Ref y) {
    const std::string name = layer + "self_attention.";
    const Ref qkv = linear(y, name + "query_key_value", 3 * c_.hidden_size, c_.hidden_size);
    const Ref attended = self_attention(g_, in_, o_, qkv,
                                        {.layer = i,
                                         .heads = {c_.num_heads, c_.num_heads, c_.head_dim},
                                         .dropout = c_.attention_dropout,
                                         .layout = QkvLayout::kInterleaved,
                                         .bias = ScoreBias::kAlibi});
    return drop(linear(attended, name + "dense", c_.hidden_size, c_.hidden_size), 2 * i);
  }

  Ref feed_forward(const std::string& layer, int64_t i, Ref y) {
    const int64_t inner = 4 * c_.hidden_size;
    const Ref up = linear(y, layer + "mlp.dense_h_to_4h", inner, c_.hidden_size);
    const Ref down =
        linear(ops::gelu(g_, up, true), layer + "mlp.dense_4h_to_h", c_.hidden_size, inner);
    return drop(down, 2 * i + 1);
  }

  Ref drop(Ref x, int64_t site) {
    return ops::dropout(g_, x, dropout_rule(in_, o_, c_.hidden_dropout, site));
  }

  Ref head() {
    return c_.tie_word_embeddings ? embed_
                                  : g_.parameter(kBloomHeadName, {c_.vocab_size, c_.hidden_size});
  }

  const BloomConfig& c_;
  TraceOptions o_;
  Builder g_;
  TracedInputs in_;
  Ref embed_;
};

CutRule cut_of(const BloomConfig& c, const std::string& name) {
  if (name == kBloomEmbedName || name == kBloomHeadName) return {0, 1, true, false, "vocabulary"};
  if (has_part(name, "query_key_value"))
    return {0, 3 * c.head_dim, false, false, "attention heads"};
  if (has_part(name, "self_attention.dense.weight"))
    return {1, c.head_dim, false, false, "attention heads"};
  if (has_part(name, "dense_h_to_4h")) return {0, 1, false, false, "feed-forward channels"};
  if (has_part(name, "dense_4h_to_h.weight")) return {1, 1, false, false, "feed-forward channels"};
  return {};
}

class BloomModel : public Model {
 public:
  explicit BloomModel(const BloomConfig& config) : c_(config) {}
  const char* family() const override { return "bloom"; }
  int64_t vocab_size() const override { return c_.vocab_size; }
  int64_t max_positions() const override { return kMostPositions; }  // ALiBi has no end
  double dropout() const override { return std::max(c_.hidden_dropout, c_.attention_dropout); }

  std::vector<ParameterSpec> parameters() const override {
    return traced_parameters(*this, [&](ParameterSpec* spec) {
      spec->cut = cut_of(c_, spec->name);
      spec->init = default_init(*spec, c_.initializer_range);
    });
  }
  std::vector<InputSpec> inputs(const TraceOptions& options) const override {
    return decoder_inputs(options, dropout() > 0);
  }
  Ref trace_loss(Graph* graph, const TraceOptions& options) const override {
    return BloomTracer(c_, graph, options, inputs(options)).result();
  }
  Ref trace_generate(Graph* graph, const TraceOptions& options) const override {
    return BloomTracer(c_, graph, options, decoder_generate_inputs()).result();
  }
  void fill_constants(const Graph&,
                      const std::function<void*(const std::string&)>&) const override {}

 private:
  BloomConfig c_;
};

}  // namespace

std::unique_ptr<Model> make_bloom(const Json& config, const ModelOverrides& overrides) {
  return std::make_unique<BloomModel>(read_bloom_config(config, overrides));
}

const FamilyTraits& bloom_traits() {
  static const FamilyTraits kTraits{
      .head = kBloomHeadName,
      .embeddings = {kBloomEmbedName, "word_embeddings.weight"},
      .layer_keys = {"n_layer", "num_hidden_layers"},
      .size_keys = {"hidden_size", "n_embed", "n_head", "num_attention_heads"},
      .base_prefix = "transformer."};
  return kTraits;
}

}  // namespace weft
