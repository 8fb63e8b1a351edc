// model/decoder/model.cpp: embedding, layers, norm, head. Nothing here knows of ranks.
//
// The residual add of each half layer is fused with the norm that follows it, so a layer passes on
// the stream and its normalised form together.
#include "model/decoder/model.h"

#include "graph/builder.h"
#include "graph/ops/embedding.h"
#include "graph/ops/linear.h"
#include "graph/ops/qk_norm.h"
#include "graph/ops/rmsnorm.h"
#include "graph/ops/rope.h"
#include "graph/ops/swiglu.h"
#include "model/decoder/hf_names.h"
#include "model/overrides.h"
#include "model/text_inputs.h"
#include "model/traced_attention.h"
#include "model/traced_head.h"
#include "model/traced_inputs.h"
#include "model/traced_parameters.h"
#include "tensor/names.h"

namespace weft {
namespace {

// The parameters as graph values, created in the order of parameters().
class DecoderTracer {
 public:
  DecoderTracer(const DecoderConfig& config, Graph* graph, const TraceOptions& options,
                const std::vector<InputSpec>& inputs)
      : c_(config), o_(options), g_(graph, options.compute), in_(&g_, inputs, options) {
    const int64_t table = o_.max_positions > 0 ? o_.max_positions : o_.positions;
    cosine_ = g_.constant("rope.cosine", {table, c_.head_dim / 2}, Dtype::kF32);
    sine_ = g_.constant("rope.sine", {table, c_.head_dim / 2}, Dtype::kF32);
    embed_ = g_.parameter(kEmbedName, {c_.vocab_size, c_.hidden_size});
  }

  // The losses, or in generation the logits.
  Ref result() {
    const Ref y = layers();
    return trace_head(g_, in_, o_, y, head());
  }

 private:
  Ref weight(int64_t layer, LayerPart part, Shape shape) {
    return g_.parameter(layer_name(layer, part, "weight"), std::move(shape));
  }
  std::vector<Ref> biases(bool wanted, int64_t layer,
                          std::vector<std::pair<LayerPart, int64_t>> parts) {
    std::vector<Ref> made;
    if (!wanted) return made;
    for (const auto& [part, n] : parts)
      made.push_back(g_.parameter(layer_name(layer, part, "bias"), {n}));
    return made;
  }
  Ref norm_weight(int64_t layer, LayerPart part) { return weight(layer, part, {c_.hidden_size}); }

  Ref layers() {
    const float eps = static_cast<float>(c_.rms_norm_eps);
    Ref x = ops::embedding(g_, in_[names::kIds], embed_, static_cast<int32_t>(c_.pad_token_id));
    g_.set_layer(0);
    Ref y = ops::rmsnorm(g_, x, Ref{}, norm_weight(0, LayerPart::kInputNorm), eps).y;
    for (int64_t i = 0; i < c_.num_hidden_layers; ++i) {
      g_.set_layer(static_cast<int>(i));
      const Ref attended = attention(i, y);
      const auto middle = ops::rmsnorm(g_, attended, x, norm_weight(i, LayerPart::kPostNorm), eps);
      const Ref fed = feed_forward(i, middle.y);
      const bool last = i + 1 == c_.num_hidden_layers;
      const Ref next = last ? g_.parameter(kFinalNormName, {c_.hidden_size})
                            : norm_weight(i + 1, LayerPart::kInputNorm);
      const auto out = ops::rmsnorm(g_, fed, middle.sum, next, eps);
      x = out.sum;
      y = out.y;
    }
    g_.set_layer(-1);
    return y;
  }

  Ref attention(int64_t i, Ref y) {
    const int64_t q = c_.num_attention_heads * c_.head_dim,
                  kv = c_.num_key_value_heads * c_.head_dim;
    const HeadShape shape{c_.num_attention_heads, c_.num_key_value_heads, c_.head_dim};
    const Ref wq = weight(i, LayerPart::kQ, {q, c_.hidden_size});
    const Ref wk = weight(i, LayerPart::kK, {kv, c_.hidden_size});
    const Ref wv = weight(i, LayerPart::kV, {kv, c_.hidden_size});
    const auto b =
        biases(c_.qkv_bias, i, {{LayerPart::kQ, q}, {LayerPart::kK, kv}, {LayerPart::kV, kv}});
    Ref qkv = ops::linear(g_, y, {wq, wk, wv}, b);
    if (c_.qk_norm) {
      const Ref q_norm = weight(i, LayerPart::kQNorm, {c_.head_dim});
      const Ref k_norm = weight(i, LayerPart::kKNorm, {c_.head_dim});
      qkv = ops::qk_norm(g_, qkv, q_norm, k_norm, shape, static_cast<float>(c_.rms_norm_eps));
    }
    qkv = ops::rope(g_, qkv, cosine_, sine_, in_[names::kPositions], shape);
    const Ref attended = self_attention(
        g_, in_, o_, qkv, {.layer = i, .heads = shape, .window = window(i), .dropout = c_.dropout});
    const Ref wo = weight(i, LayerPart::kO, {c_.hidden_size, q});
    return ops::linear(g_, attended, {wo}, biases(c_.o_bias, i, {{LayerPart::kO, c_.hidden_size}}));
  }

  int64_t window(int64_t layer) const {
    return c_.windows.empty() ? 0 : c_.windows[static_cast<size_t>(layer)];
  }

  Ref feed_forward(int64_t i, Ref y) {
    const int64_t f = c_.intermediate_size;
    const Ref gate = weight(i, LayerPart::kGate, {f, c_.hidden_size});
    const Ref up = weight(i, LayerPart::kUp, {f, c_.hidden_size});
    const auto b = biases(c_.mlp_bias, i, {{LayerPart::kGate, f}, {LayerPart::kUp, f}});
    const Ref h = ops::swiglu(g_, ops::linear(g_, y, {gate, up}, b));
    const Ref down = weight(i, LayerPart::kDown, {c_.hidden_size, f});
    return ops::linear(g_, h, {down}, biases(c_.mlp_bias, i, {{LayerPart::kDown, c_.hidden_size}}));
  }

  Ref head() {
    return c_.tie_word_embeddings ? embed_
                                  : g_.parameter(kHeadName, {c_.vocab_size, c_.hidden_size});
  }

  const DecoderConfig& c_;
  TraceOptions o_;
  Builder g_;
  TracedInputs in_;
  Ref cosine_, sine_, embed_;
};

}  // namespace

std::unique_ptr<Model> make_decoder(DecoderConfig config, const ModelOverrides& overrides) {
  config.num_hidden_layers = layers_in_force(config.num_hidden_layers, overrides);
  config.dropout = dropout_in_force(config.dropout, "attention_dropout", overrides);
  return std::make_unique<DecoderModel>(std::move(config));
}

std::vector<InputSpec> DecoderModel::inputs(const TraceOptions& options) const {
  return decoder_inputs(options, config_.dropout > 0);
}

Ref DecoderModel::trace_loss(Graph* graph, const TraceOptions& options) const {
  return DecoderTracer(config_, graph, options, inputs(options)).result();
}

Ref DecoderModel::trace_generate(Graph* graph, const TraceOptions& options) const {
  return DecoderTracer(config_, graph, options, decoder_generate_inputs()).result();
}

void DecoderModel::fill_constants(const Graph& graph,
                                  const std::function<void*(const std::string&)>& data) const {
  fill_rope(rope_frequencies(config_.rope, config_.head_dim),
            graph[*graph.find("rope.cosine")].shape[0], static_cast<float*>(data("rope.cosine")),
            static_cast<float*>(data("rope.sine")));
}

std::vector<ParameterSpec> DecoderModel::parameters() const {
  return traced_parameters(*this, [&](ParameterSpec* spec) {
    spec->cut = decoder_cut(config_, spec->name);
    spec->init = default_init(*spec, config_.initializer_range);
    if (spec->name == kEmbedName) spec->init.zero_row = config_.pad_token_id;
  });
}

}  // namespace weft
