// model/t5/model.cpp: T5: an encoder and a decoder with cross attention and relative positions.
//
// Every part of a block is norm, branch, dropout, sum; the sum is fused with the norm that follows,
// so a stack passes on the stream and its normalised form together.
#include <fmt/core.h>

#include <cmath>

#include "graph/builder.h"
#include "graph/ops/attention.h"
#include "graph/ops/cached_attention.h"
#include "graph/ops/dropout.h"
#include "graph/ops/embedding.h"
#include "graph/ops/fill_cache.h"
#include "graph/ops/geglu.h"
#include "graph/ops/linear.h"
#include "graph/ops/relu.h"
#include "graph/ops/rmsnorm.h"
#include "graph/ops/scale.h"
#include "model/config_fields.h"
#include "model/name_part.h"
#include "model/t5/config.h"
#include "model/text_inputs.h"
#include "model/traced_attention.h"
#include "model/traced_head.h"
#include "model/traced_inputs.h"
#include "model/traced_parameters.h"
#include "tensor/names.h"

namespace weft {
namespace {

constexpr const char* kT5EmbedName = "shared.weight";
constexpr const char* kT5HeadName = "lm_head.weight";

double inverse_root(int64_t n) { return 1 / std::sqrt(static_cast<double>(n)); }

class T5Tracer {
 public:
  T5Tracer(const T5Config& config, Graph* graph, const TraceOptions& options,
           const std::vector<InputSpec>& inputs)
      : c_(config), o_(options), g_(graph, options.compute), in_(&g_, inputs, options) {
    embed_ = g_.parameter(kT5EmbedName, {c_.vocab_size, c_.d_model});
  }

  Ref loss() {
    const Ref y = decoder(encoder());
    return trace_head(g_, in_, o_, y, head());
  }

  // The source is in the caches.
  Ref logits() {
    const Ref y = decoder({});
    return trace_head(g_, in_, o_, y, head());
  }

  void encode() {
    const Ref encoded = encoder();
    for (int64_t i = 0; i < c_.num_decoder_layers; ++i) {
      g_.set_layer(static_cast<int>(c_.num_layers + i));
      const std::string name = fmt::format("decoder.block.{}.layer.1.EncDecAttention.", i);
      ops::fill_cache(g_, QkvLayout::kQAndKv, keys_and_values(name, encoded), heads(),
                      in_[names::kSourceLengths], source_cache(i, "k"), source_cache(i, "v"));
    }
  }

 private:
  Ref encoder() { return stack("encoder", c_.num_layers, in_[names::kSourceIds], false, {}); }
  Ref decoder(Ref encoded) {
    const Ref y = stack("decoder", c_.num_decoder_layers, in_[names::kIds], true, encoded);
    if (!c_.is_output_scaled) return y;
    return ops::scale(g_, y, static_cast<float>(inverse_root(c_.d_model)));
  }
  Ref head() {
    return c_.has_separate_head ? g_.parameter(kT5HeadName, {c_.vocab_size, c_.d_model}) : embed_;
  }
  HeadShape heads() const { return {c_.num_heads, c_.num_heads, c_.d_kv}; }

  // The table of relative positions belongs to block 0, and all blocks read it. encoded: what the
  // decoder's cross attention reads; absent: its caches.
  Ref stack(const std::string& name, int64_t num_blocks, Ref ids, bool is_decoder, Ref encoded) {
    const int last_part = is_decoder ? 2 : 1;
    const auto part_name = [&](int64_t block, int part) {
      return fmt::format("{}.block.{}.layer.{}.", name, block, part);
    };
    const int64_t first_layer = is_decoder ? c_.num_layers : 0;
    Ref x = drop(ops::embedding(g_, ids, embed_, -1));
    g_.set_layer(static_cast<int>(first_layer));
    Ref y = norm(x, {}, part_name(0, 0) + "layer_norm").y;
    const Ref table = g_.parameter(part_name(0, 0) + "SelfAttention.relative_attention_bias.weight",
                                   {c_.num_buckets, c_.num_heads});
    for (int64_t i = 0; i < num_blocks; ++i) {
      g_.set_layer(static_cast<int>(first_layer + i));
      for (int part = 0; part <= last_part; ++part) {
        const std::string at = part_name(i, part);
        const Ref branch = part == last_part ? feed_forward(at + "DenseReluDense.", y)
                           : part == 1
                               ? cross_attention(at + "EncDecAttention.", i, y, encoded)
                               : self_attention(at + "SelfAttention.", i, y, table, is_decoder);
        const std::string next = part < last_part     ? part_name(i, part + 1) + "layer_norm"
                                 : i + 1 < num_blocks ? part_name(i + 1, 0) + "layer_norm"
                                                      : name + ".final_layer_norm";
        const auto out = norm(drop(branch), x, next);
        x = out.sum;
        y = out.y;
      }
    }
    g_.set_layer(-1);
    return drop(y);
  }

  ops::Normed norm(Ref x, Ref residual, const std::string& name) {
    return ops::rmsnorm(g_, x, residual, g_.parameter(name + ".weight", {c_.d_model}),
                        static_cast<float>(c_.layer_norm_eps));
  }

  Ref weight(const std::string& name, int64_t out, int64_t in) {
    return g_.parameter(name + ".weight", {out, in});
  }

  Ref self_attention(const std::string& name, int64_t block, Ref y, Ref table, bool is_decoder) {
    const Ref qkv = ops::linear(
        g_, y, {qkv_weight(name, 'q'), qkv_weight(name, 'k'), qkv_weight(name, 'v')}, {});
    if (in_[names::kStarts]) {
      CachedAttentionCall call;
      call.value = qkv;
      call.heads = heads();
      call.starts = in_[names::kStarts];
      call.lengths = in_[names::kLengths];
      call.k_cache = cache(block, "k");
      call.v_cache = cache(block, "v");
      call.scale = 1;
      call.bias = ScoreBias::kRelative;
      call.table = table;
      call.max_distance = c_.max_distance;
      return projected(name, ops::cached_attention(g_, call));
    }
    AttentionCall call;
    call.values = {qkv};
    call.lengths = in_[is_decoder ? names::kLengths : names::kSourceLengths];
    call.positions = in_[is_decoder ? names::kPositions : names::kSourcePositions];
    call.padding_attends = o_.learns_padding && is_decoder;
    call.causal = is_decoder;
    call.bias = ScoreBias::kRelative;
    call.table = table;
    call.max_distance = c_.max_distance;
    return attention(name, &call);
  }

  Ref cross_attention(const std::string& name, int64_t block, Ref y, Ref encoded) {
    const Ref q = ops::linear(g_, y, {qkv_weight(name, 'q')}, {});
    if (!encoded) {
      CachedSourceCall call;
      call.q = q;
      call.heads = heads();
      call.lengths = in_[names::kLengths];
      call.source_lengths = in_[names::kSourceLengths];
      call.k_cache = source_cache(block, "k");
      call.v_cache = source_cache(block, "v");
      call.scale = 1;
      return projected(name, ops::cached_attention(g_, call));
    }
    AttentionCall call;
    call.layout = QkvLayout::kQAndKv;
    call.values = {q, keys_and_values(name, encoded)};
    call.lengths = in_[names::kLengths];
    call.positions = in_[names::kPositions];
    call.source_lengths = in_[names::kSourceLengths];
    call.source_positions = in_[names::kSourcePositions];
    call.padding_attends = o_.learns_padding;
    call.causal = false;
    return attention(name, &call);
  }

  Ref attention(const std::string& name, AttentionCall* call) {
    call->heads = heads();
    call->scale = 1;
    call->dropout = next_dropout(&num_attentions_);
    return projected(name, ops::attention(g_, *call));
  }

  Ref projected(const std::string& name, Ref attended) {
    return ops::linear(g_, attended, {weight(name + "o", c_.d_model, c_.num_heads * c_.d_kv)}, {});
  }
  Ref qkv_weight(const std::string& name, char which) {
    return weight(name + which, c_.num_heads * c_.d_kv, c_.d_model);
  }
  Ref keys_and_values(const std::string& name, Ref encoded) {
    const Ref k = qkv_weight(name, 'k'), v = qkv_weight(name, 'v');
    return ops::linear(g_, encoded, {k, v}, {});
  }

  Ref cache(int64_t block, const char* which) {
    return g_.cache(fmt::format("cache.{}.{}", block, which),
                    {o_.batch, o_.max_positions, c_.num_heads, c_.d_kv});
  }
  Ref source_cache(int64_t block, const char* which) {
    return g_.cache(fmt::format("{}{}.{}", names::kSourceCache, block, which),
                    {o_.batch, o_.max_source_positions, c_.num_heads, c_.d_kv});
  }

  Ref feed_forward(const std::string& name, Ref y) {
    Ref h;
    if (c_.is_gated) {
      const Ref gate = weight(name + "wi_0", c_.d_ff, c_.d_model);
      const Ref up = weight(name + "wi_1", c_.d_ff, c_.d_model);
      h = ops::geglu(g_, ops::linear(g_, y, {gate, up}, {}));
    } else {
      h = ops::relu(g_, ops::linear(g_, y, {weight(name + "wi", c_.d_ff, c_.d_model)}, {}));
    }
    return ops::linear(g_, drop(h), {weight(name + "wo", c_.d_model, c_.d_ff)}, {});
  }

  Ref drop(Ref x) { return ops::dropout(g_, x, next_dropout(&num_dropouts_)); }

  DropoutRule next_dropout(int64_t* site) { return dropout_rule(in_, o_, c_.dropout, (*site)++); }

  const T5Config& c_;
  TraceOptions o_;
  Builder g_;
  TracedInputs in_;
  Ref embed_;
  int64_t num_attentions_ = 0, num_dropouts_ = 0;
};

CutRule cut_of(const T5Config& c, const std::string& name) {
  if (name == kT5EmbedName || name == kT5HeadName) return {0, 1, true, false, "vocabulary"};
  if (has_part(name, "relative_attention_bias")) return {1, 1, false, false, "attention heads"};
  if (has_part(name, "Attention.o.")) return {1, c.d_kv, false, false, "attention heads"};
  if (has_part(name, "Attention.")) return {0, c.d_kv, false, false, "attention heads"};
  if (has_part(name, ".wi")) return {0, 1, false, false, "feed-forward channels"};
  if (has_part(name, ".wo.")) return {1, 1, false, false, "feed-forward channels"};
  return {};
}

// Attention's scale of 1 is made up for by q's smaller start.
InitRule init_of(const T5Config& c, const ParameterSpec& spec) {
  InitRule init = default_init(spec, c.initializer_factor);
  if (init.kind == InitRule::Kind::kOnes) init.kind = InitRule::Kind::kConstant;  // of norms
  if (has_part(spec.name, "Attention.q.")) init.std *= inverse_root(c.d_model * c.d_kv);
  if (has_part(spec.name, "Attention.o.")) init.std *= inverse_root(c.num_heads * c.d_kv);
  for (const char* part : {"Attention.k.", "Attention.v.", "relative_attention_bias", ".wi"})
    if (has_part(spec.name, part)) init.std *= inverse_root(c.d_model);
  if (has_part(spec.name, ".wo.")) init.std *= inverse_root(c.d_ff);
  return init;
}

class T5Model : public Model {
 public:
  explicit T5Model(const T5Config& config) : c_(config) {}
  const char* family() const override { return "t5"; }
  int64_t vocab_size() const override { return c_.vocab_size; }
  int64_t max_positions() const override { return kMostPositions; }  // relative: there is no end
  double dropout() const override { return c_.dropout; }

  std::vector<ParameterSpec> parameters() const override {
    return traced_parameters(*this, [&](ParameterSpec* spec) {
      spec->cut = cut_of(c_, spec->name);
      spec->init = init_of(c_, *spec);
    });
  }
  std::vector<InputSpec> inputs(const TraceOptions& options) const override {
    return encoder_decoder_inputs(options, c_.dropout > 0);
  }
  Ref trace_loss(Graph* graph, const TraceOptions& options) const override {
    return T5Tracer(c_, graph, options, inputs(options)).loss();
  }
  Ref trace_generate(Graph* graph, const TraceOptions& options) const override {
    return T5Tracer(c_, graph, options, encoder_decoder_generate_inputs()).logits();
  }
  void trace_encode(Graph* graph, const TraceOptions& options) const override {
    T5Tracer(c_, graph, options, encode_inputs()).encode();
  }
  int32_t start_id() const override { return c_.start_id; }
  void fill_constants(const Graph&,
                      const std::function<void*(const std::string&)>&) const override {}

 private:
  T5Config c_;
};

}  // namespace

std::unique_ptr<Model> make_t5(const Json& config, const ModelOverrides& overrides) {
  return std::make_unique<T5Model>(read_t5_config(config, overrides));
}

}  // namespace weft
