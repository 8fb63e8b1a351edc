// model/gpt2/model.cpp: GPT-2: learned positions, norms with biases, weights stored as (in, out).
//
// c_attn is one stored tensor with q, k and v side by side; here they are three parameters, so
// that tensor parallelism cuts each by heads.
#include <fmt/core.h>

#include <algorithm>
#include <cmath>

#include "graph/builder.h"
#include "graph/ops/add.h"
#include "graph/ops/dropout.h"
#include "graph/ops/embedding.h"
#include "graph/ops/gelu.h"
#include "graph/ops/layernorm.h"
#include "graph/ops/linear.h"
#include "model/family.h"
#include "model/gpt2/config.h"
#include "model/name_part.h"
#include "model/text_inputs.h"
#include "model/traced_attention.h"
#include "model/traced_head.h"
#include "model/traced_inputs.h"
#include "model/traced_parameters.h"
#include "tensor/names.h"

namespace weft {
namespace {

constexpr const char* kGpt2EmbedName = "transformer.wte.weight";
constexpr const char* kPositionsName = "transformer.wpe.weight";
constexpr const char* kGpt2HeadName = "lm_head.weight";
constexpr const char* kThirds[] = {"c_attn.q.", "c_attn.k.", "c_attn.v."};

class Gpt2Tracer {
 public:
  Gpt2Tracer(const Gpt2Config& config, Graph* graph, const TraceOptions& options,
             const std::vector<InputSpec>& inputs)
      : c_(config), o_(options), g_(graph, options.compute), in_(&g_, inputs, options) {
    embed_ = g_.parameter(kGpt2EmbedName, {c_.vocab_size, c_.n_embd});
  }

  // The losses, or in generation the logits.
  Ref result() {
    const Ref y = layers();
    return trace_head(g_, in_, o_, y, head());
  }

 private:
  Ref head() {
    return c_.tie_word_embeddings ? embed_
                                  : g_.parameter(kGpt2HeadName, {c_.vocab_size, c_.n_embd});
  }

  ops::Normed norm(Ref x, Ref residual, const std::string& name) {
    const Ref weight = g_.parameter(name + ".weight", {c_.n_embd});
    const Ref bias = g_.parameter(name + ".bias", {c_.n_embd});
    return ops::layernorm(g_, x, residual, weight, bias, static_cast<float>(c_.layer_norm_epsilon));
  }

  // x times the weights side by side.
  Ref linear(Ref x, const std::vector<std::string>& names, int64_t in, int64_t out) {
    std::vector<Ref> weights, biases;
    for (const std::string& name : names)
      weights.push_back(g_.parameter(name + "weight", {in, out}));
    for (const std::string& name : names) biases.push_back(g_.parameter(name + "bias", {out}));
    return ops::linear(g_, x, weights, biases, WeightOrder::kInOut);
  }

  // Sites of the stream: the embeddings, then two in each layer.
  Ref drop(Ref x, double rate, int64_t site) {
    return ops::dropout(g_, x, dropout_rule(in_, o_, rate, site));
  }

  Ref embedded() {
    const Ref positions = g_.parameter(kPositionsName, {c_.n_positions, c_.n_embd});
    return drop(ops::add(g_, ops::embedding(g_, in_[names::kIds], embed_, -1),
                         ops::embedding(g_, in_[names::kPositions], positions, -1)),
                c_.embd_pdrop, 0);
  }

  static std::string layer_name(int64_t layer) { return fmt::format("transformer.h.{}.", layer); }

  Ref layers() {
    Ref x = embedded();
    g_.set_layer(0);
    Ref y = norm(x, {}, layer_name(0) + "ln_1").y;
    for (int64_t i = 0; i < c_.n_layer; ++i) {
      g_.set_layer(static_cast<int>(i));
      const auto middle = norm(attention(i, y), x, layer_name(i) + "ln_2");
      const bool is_last = i + 1 == c_.n_layer;
      const auto out = norm(feed_forward(i, middle.y), middle.sum,
                            is_last ? "transformer.ln_f" : layer_name(i + 1) + "ln_1");
      x = out.sum;
      y = out.y;
    }
    g_.set_layer(-1);
    return y;
  }

  Ref attention(int64_t i, Ref y) {
    const std::string name = layer_name(i) + "attn.";
    const int64_t C = c_.n_embd;
    std::vector<std::string> thirds;
    for (const char* third : kThirds) thirds.push_back(name + third);
    const Ref attended = self_attention(g_, in_, o_, linear(y, thirds, C, C),
                                        {.layer = i,
                                         .heads = {c_.n_head, c_.n_head, c_.head_dim()},
                                         .scale = c_.scale_attn_weights ? 0.0f : 1.0f,
                                         .dropout = c_.attn_pdrop});
    return drop(linear(attended, {name + "c_proj."}, C, C), c_.resid_pdrop, 2 * i + 1);
  }

  Ref feed_forward(int64_t i, Ref y) {
    const std::string name = layer_name(i) + "mlp.";
    const Ref up = linear(y, {name + "c_fc."}, c_.n_embd, c_.n_inner);
    const Ref down =
        linear(ops::gelu(g_, up, !c_.has_exact_gelu), {name + "c_proj."}, c_.n_inner, c_.n_embd);
    return drop(down, c_.resid_pdrop, 2 * i + 2);
  }

  const Gpt2Config& c_;
  TraceOptions o_;
  Builder g_;
  TracedInputs in_;
  Ref embed_;
};

CutRule cut_of(const Gpt2Config& c, const ParameterSpec& p) {
  constexpr const char *kHeads = "attention heads", *kWidth = "feed-forward channels";
  const int out = static_cast<int>(p.shape.size()) - 1;  // of a weight, or of its bias
  if (p.name == kGpt2EmbedName || p.name == kGpt2HeadName) return {0, 1, true, false, "vocabulary"};
  if (has_part(p.name, "c_attn.")) return {out, c.head_dim(), false, false, kHeads};
  if (has_part(p.name, "attn.c_proj.weight")) return {0, c.head_dim(), false, false, kHeads};
  if (has_part(p.name, "c_fc.")) return {out, 1, false, false, kWidth};
  if (has_part(p.name, "mlp.c_proj.weight")) return {0, 1, false, false, kWidth};
  return {};
}

// q, k and v are columns of c_attn.
StoredAs stored_of(const ParameterSpec& p) {
  for (int64_t k = 0; k < 3; ++k) {
    const std::string third = kThirds[k];
    const size_t at = p.name.find(third);
    if (at == std::string::npos) continue;
    StoredAs stored{p.name, p.shape, Shape(p.shape.size(), 0)};
    stored.name.replace(at, third.size(), "c_attn.");
    stored.begin.back() = k * p.shape.back();
    stored.shape.back() = 3 * p.shape.back();
    return stored;
  }
  return {};
}

class Gpt2Model : public Model {
 public:
  explicit Gpt2Model(const Gpt2Config& config) : c_(config) {}
  const char* family() const override { return "gpt2"; }
  int64_t vocab_size() const override { return c_.vocab_size; }
  int64_t max_positions() const override { return c_.n_positions; }
  const char* way_to_more_positions() const override {
    return "raise n_positions in config.json, with model.init: random: pretrained weights have a "
           "table of that size";
  }
  double dropout() const override {
    return std::max({c_.embd_pdrop, c_.attn_pdrop, c_.resid_pdrop});
  }

  std::vector<ParameterSpec> parameters() const override {
    return traced_parameters(*this, [&](ParameterSpec* spec) {
      spec->cut = cut_of(c_, *spec);
      spec->stored = stored_of(*spec);
      spec->init = default_init(*spec, c_.initializer_range);
      // Each layer adds twice to the stream.
      if (spec->name.ends_with("c_proj.weight"))
        spec->init.std /= std::sqrt(2 * static_cast<double>(c_.n_layer));
    });
  }
  std::vector<InputSpec> inputs(const TraceOptions& options) const override {
    return decoder_inputs(options, dropout() > 0, true);
  }
  Ref trace_loss(Graph* graph, const TraceOptions& options) const override {
    return Gpt2Tracer(c_, graph, options, inputs(options)).result();
  }
  Ref trace_generate(Graph* graph, const TraceOptions& options) const override {
    return Gpt2Tracer(c_, graph, options, decoder_generate_inputs()).result();
  }
  void fill_constants(const Graph&,
                      const std::function<void*(const std::string&)>&) const override {}

 private:
  Gpt2Config c_;
};

}  // namespace

std::unique_ptr<Model> make_gpt2(const Json& config, const ModelOverrides& overrides) {
  return std::make_unique<Gpt2Model>(read_gpt2_config(config, overrides));
}

const FamilyTraits& gpt2_traits() {
  static const FamilyTraits kTraits{
      .head = kGpt2HeadName,
      .embeddings = {kGpt2EmbedName, "wte.weight"},
      .layer_keys = {"n_layer", "num_hidden_layers"},
      .size_keys = {"n_embd", "hidden_size", "n_head", "num_attention_heads", "n_inner"},
      .base_prefix = "transformer.",
      .stray_ends = {".attn.bias", ".attn.masked_bias"}};  // masks
  return kTraits;
}

}  // namespace weft
