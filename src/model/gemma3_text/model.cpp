// model/gemma3_text/model.cpp: Gemma 3's text models: norms before and after each half layer,
// layers with and without a window, each kind with rope tables of its own.
#include "model/decoder/model.h"

#include <fmt/core.h>

#include <cmath>

#include "graph/builder.h"
#include "graph/ops/embedding.h"
#include "graph/ops/geglu.h"
#include "graph/ops/linear.h"
#include "graph/ops/qk_norm.h"
#include "graph/ops/rmsnorm.h"
#include "graph/ops/rope.h"
#include "graph/ops/scale.h"
#include "model/decoder/hf_names.h"
#include "model/gemma3_text/config.h"
#include "model/text_inputs.h"
#include "model/traced_attention.h"
#include "model/traced_head.h"
#include "model/traced_inputs.h"
#include "model/traced_parameters.h"
#include "tensor/names.h"

namespace weft {
namespace {

// Its norms multiply by 1 + weight.
constexpr int kWeightOffset = 1;

struct RopeNames {
  const char *cosine, *sine;
};
constexpr RopeNames kGlobal = {"rope.global.cosine", "rope.global.sine"};
constexpr RopeNames kLocal = {"rope.local.cosine", "rope.local.sine"};

// sqrt(C), rounded to the type in which it is multiplied: in bf16 sqrt(3072) is 55.5.
float embedding_scale(int64_t hidden_size, Dtype compute) {
  std::byte rounded[8];
  store_element(rounded, compute, 0, std::sqrt(static_cast<float>(hidden_size)));
  return load_element(rounded, compute, 0);
}

class Gemma3Tracer {
 public:
  Gemma3Tracer(const Gemma3Config& config, Graph* graph, const TraceOptions& options,
               const std::vector<InputSpec>& inputs)
      : config_(config),
        c_(config.sizes),
        o_(options),
        g_(graph, options.compute),
        in_(&g_, inputs, options),
        eps_(static_cast<float>(c_.rms_norm_eps)) {
    embed_ = g_.parameter(kEmbedName, {c_.vocab_size, c_.hidden_size});
  }

  // The losses, or in generation the logits.
  Ref result() {
    const Ref y = layers();
    return trace_head(g_, in_, o_, y, head());
  }

 private:
  Ref head() {
    return c_.tie_word_embeddings ? embed_
                                  : g_.parameter(kHeadName, {c_.vocab_size, c_.hidden_size});
  }

  ops::Normed norm(Ref x, Ref residual, const std::string& name) {
    return ops::rmsnorm(g_, x, residual, g_.parameter(name + ".weight", {c_.hidden_size}), eps_,
                        kWeightOffset);
  }

  static std::string layer_name(int64_t layer) { return fmt::format("model.layers.{}.", layer); }

  Ref layers() {
    Ref x = ops::scale(
        g_, ops::embedding(g_, in_[names::kIds], embed_, static_cast<int32_t>(c_.pad_token_id)),
        embedding_scale(c_.hidden_size, o_.compute));
    g_.set_layer(0);
    Ref y = norm(x, {}, layer_name(0) + "input_layernorm").y;
    for (int64_t i = 0; i < c_.num_hidden_layers; ++i) {
      g_.set_layer(static_cast<int>(i));
      const std::string name = layer_name(i);
      const Ref attended = norm(attention(i, y), {}, name + "post_attention_layernorm").y;
      const auto middle = norm(attended, x, name + "pre_feedforward_layernorm");
      const Ref fed = norm(feed_forward(name, middle.y), {}, name + "post_feedforward_layernorm").y;
      const bool is_last = i + 1 == c_.num_hidden_layers;
      const auto out =
          norm(fed, middle.sum, is_last ? "model.norm" : layer_name(i + 1) + "input_layernorm");
      x = out.sum;
      y = out.y;
    }
    g_.set_layer(-1);
    return y;
  }

  Ref linear(Ref x, const std::vector<std::string>& names, const std::vector<int64_t>& widths,
             int64_t in, bool has_bias) {
    std::vector<Ref> weights, biases;
    for (size_t k = 0; k < names.size(); ++k)
      weights.push_back(g_.parameter(names[k] + ".weight", {widths[k], in}));
    for (size_t k = 0; has_bias && k < names.size(); ++k)
      biases.push_back(g_.parameter(names[k] + ".bias", {widths[k]}));
    return ops::linear(g_, x, weights, biases);
  }

  // Those of layers of one kind, created for the first of them.
  Ref table(const char* name) {
    for (const auto& [made, ref] : tables_) {
      if (made == name) return ref;
    }
    const int64_t positions = o_.max_positions > 0 ? o_.max_positions : o_.positions;
    tables_.emplace_back(name, g_.constant(name, {positions, c_.head_dim / 2}, Dtype::kF32));
    return tables_.back().second;
  }

  Ref attention(int64_t i, Ref y) {
    const std::string name = layer_name(i) + "self_attn.";
    const HeadShape heads{c_.num_attention_heads, c_.num_key_value_heads, c_.head_dim};
    const int64_t q = heads.heads * heads.head_dim, kv = heads.kv_heads * heads.head_dim;
    Ref qkv = linear(y, {name + "q_proj", name + "k_proj", name + "v_proj"}, {q, kv, kv},
                     c_.hidden_size, c_.qkv_bias);
    const Ref q_norm = g_.parameter(name + "q_norm.weight", {c_.head_dim});
    const Ref k_norm = g_.parameter(name + "k_norm.weight", {c_.head_dim});
    qkv = ops::qk_norm(g_, qkv, q_norm, k_norm, heads, eps_, kWeightOffset);
    const RopeNames& rope = config_.is_local(i) ? kLocal : kGlobal;
    const Ref cosine = table(rope.cosine), sine = table(rope.sine);
    qkv = ops::rope(g_, qkv, cosine, sine, in_[names::kPositions], heads);
    const Ref attended = self_attention(g_, in_, o_, qkv,
                                        {.layer = i,
                                         .heads = heads,
                                         .window = c_.windows[static_cast<size_t>(i)],
                                         .scale = static_cast<float>(config_.attention_scale),
                                         .dropout = c_.dropout});
    return linear(attended, {name + "o_proj"}, {c_.hidden_size}, q, c_.o_bias);
  }

  Ref feed_forward(const std::string& layer, Ref y) {
    const int64_t f = c_.intermediate_size;
    const Ref both =
        linear(y, {layer + "mlp.gate_proj", layer + "mlp.up_proj"}, {f, f}, c_.hidden_size, false);
    return linear(ops::geglu(g_, both), {layer + "mlp.down_proj"}, {c_.hidden_size}, f, false);
  }

  const Gemma3Config& config_;
  const DecoderConfig& c_;
  TraceOptions o_;
  Builder g_;
  TracedInputs in_;
  float eps_;
  Ref embed_;
  std::vector<std::pair<std::string, Ref>> tables_;
};

class Gemma3Model : public Model {
 public:
  explicit Gemma3Model(Gemma3Config config) : config_(std::move(config)) {}
  const char* family() const override { return "gemma3_text"; }
  int64_t vocab_size() const override { return config_.sizes.vocab_size; }
  int64_t max_positions() const override { return config_.sizes.max_position_embeddings; }
  double dropout() const override { return config_.sizes.dropout; }

  std::vector<ParameterSpec> parameters() const override {
    return traced_parameters(*this, [&](ParameterSpec* spec) {
      spec->cut = decoder_cut(config_.sizes, spec->name);
      spec->init = default_init(*spec, config_.sizes.initializer_range);
      if (spec->shape.size() == 1) spec->init.kind = InitRule::Kind::kZeros;
      if (spec->name == kEmbedName) spec->init.zero_row = config_.sizes.pad_token_id;
    });
  }
  std::vector<InputSpec> inputs(const TraceOptions& options) const override {
    return decoder_inputs(options, dropout() > 0);
  }
  Ref trace_loss(Graph* graph, const TraceOptions& options) const override {
    return Gemma3Tracer(config_, graph, options, inputs(options)).result();
  }
  Ref trace_generate(Graph* graph, const TraceOptions& options) const override {
    return Gemma3Tracer(config_, graph, options, decoder_generate_inputs()).result();
  }
  void fill_constants(const Graph& graph,
                      const std::function<void*(const std::string&)>& data) const override {
    const auto fill = [&](const RopeNames& name, const RopeConfig& rope) {
      const auto found = graph.find(name.cosine);
      if (!found) return;
      fill_rope(rope_frequencies(rope, config_.sizes.head_dim), graph[*found].shape[0],
                static_cast<float*>(data(name.cosine)), static_cast<float*>(data(name.sine)));
    };
    fill(kGlobal, config_.sizes.rope);
    fill(kLocal, config_.local_rope);
  }

 private:
  Gemma3Config config_;
};

}  // namespace

std::unique_ptr<Model> make_gemma3_text(const Json& config, const ModelOverrides& overrides) {
  return std::make_unique<Gemma3Model>(read_gemma3_config(config, overrides));
}

const FamilyTraits& gemma3_text_traits() {
  static const FamilyTraits kTraits = [] {
    FamilyTraits traits = decoder_traits();
    traits.is_head_tied = true;
    return traits;
  }();
  return kTraits;
}

}  // namespace weft
