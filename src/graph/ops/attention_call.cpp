// graph/ops/attention_call.cpp: checks the arguments of attention.
#include <cmath>
#include <cstdint>

#include "base/error.h"
#include "graph/ops/attention.h"

namespace weft {
namespace {

constexpr int64_t kMostDropoutSites = 1 << 16;  // kernel/dropout.h has 16 bits for each

void check_attention(bool ok, const std::string& what) { check_operands(ok, &kAttentionOp, what); }

// Columns of each value.
std::vector<int64_t> value_columns(QkvLayout layout, const HeadShape& h) {
  const int64_t q = h.heads * h.head_dim, kv = h.kv_heads * h.head_dim;
  if (layout == QkvLayout::kSeparate) return {q, kv, kv};
  if (layout == QkvLayout::kQAndKv) return {q, 2 * kv};
  return {q + 2 * kv};
}

void check_values(const Builder& g, const AttentionCall& call) {
  const HeadShape& h = call.heads;
  const std::vector<int64_t> columns = value_columns(call.layout, h);
  check_attention(call.values.size() == columns.size(),
                  fmt::format("wanted {} values, got {}", columns.size(), call.values.size()));
  for (size_t i = 0; i < columns.size(); ++i) {
    const Shape& s = g.shape(call.values[i]);
    check_attention(s.size() == 3 && s[2] == columns[i] && s[0] == g.shape(call.values[0])[0] &&
                        s[1] == g.shape(call.values[i == 0 ? 0 : 1])[1],
                    fmt::format("wanted (B, T, {}), got {}", columns[i], to_string(s)));
  }
  check_attention(h.heads % h.kv_heads == 0,
                  fmt::format("{} key/value heads do not divide {} heads", h.kv_heads, h.heads));
  check_attention(call.layout != QkvLayout::kInterleaved || h.heads == h.kv_heads,
                  "interleaved heads have a key and a value each");
}

// Lengths and positions of one side, whose value has the shape s.
void check_side(const Builder& g, const Shape& s, Ref lengths, Ref positions) {
  check_attention(lengths && g.shape(lengths) == Shape{s[0]},
                  fmt::format("{} needs one length per row, got {}", to_string(s),
                              lengths ? to_string(g.shape(lengths)) : "none"));
  check_attention(!positions || g.shape(positions) == Shape{s[0], s[1]},
                  fmt::format("{} needs one position per token, got {}", to_string(s),
                              positions ? to_string(g.shape(positions)) : "none"));
}

void check_bias(const Builder& g, Op op, const AttentionCall& call) {
  const auto check_attention = [&](bool ok, const std::string& what) {
    check_operands(ok, op, what);
  };
  const bool is_relative = call.bias == ScoreBias::kRelative;
  check_attention(is_relative == static_cast<bool>(call.table),
                  "a relative bias, and no other, has a table");
  check_attention(call.bias != ScoreBias::kAlibi || call.heads.heads <= kMostHeadsOfAlibi,
                  fmt::format("ALiBi has slopes for up to {} heads, got {}", kMostHeadsOfAlibi,
                              call.heads.heads));
  if (!is_relative) return;
  const Shape& s = g.shape(call.table);
  check_attention(
      s.size() == 2 && s[1] == call.heads.heads,
      fmt::format("wanted a table (buckets, {}), got {}", call.heads.heads, to_string(s)));
  const int64_t side = call.causal ? s[0] : s[0] / 2;
  check_attention(
      side >= 2 && side <= kMostRelativeBuckets && call.max_distance > side / 2 &&
          call.max_distance < INT32_MAX / 2,
      fmt::format("{} buckets up to distance {} cannot be made", s[0], call.max_distance));
}

void check_dropout(const Builder& g, int64_t batch, HeadShape h, const DropoutRule& dropout) {
  check_attention(dropout.rate >= 0 && dropout.rate < 1,
                  fmt::format("wanted a dropout in [0, 1), got {}", dropout.rate));
  if (dropout.rate == 0) return;
  check_attention(dropout.rows && g.shape(dropout.rows) == Shape{batch, 2},
                  "dropout needs every row's epoch and index");
  check_attention(dropout.site < kMostDropoutSites && h.heads <= kMostDropoutSites,
                  "dropout is drawn for up to 65536 attentions and heads");
}

void check_call(const Builder& g, const AttentionCall& call) {
  check_values(g, call);
  const Shape& q = g.shape(call.values[0]);
  const Shape& k = g.shape(call.values.back());
  check_side(g, q, call.lengths, call.positions);
  check_attention(!call.positions || !call.padding_attends,
                  "padding of packed rows belongs to no segment");
  if (call.source_lengths) {
    check_side(g, k, call.source_lengths, call.source_positions);
    check_attention(!call.positions == !call.source_positions,
                    "either both sides have segments, or neither");
  } else {
    check_attention(q[1] == k[1] && !call.source_positions,
                    "keys of other rows need their own lengths");
  }
  check_scores(g, &kAttentionOp, call);
  check_dropout(g, q[0], call.heads, call.dropout);
}

}  // namespace

void check_scores(const Builder& g, Op op, const AttentionCall& call) {
  const auto check_attention = [&](bool ok, const std::string& what) {
    check_operands(ok, op, what);
  };
  check_attention(
      std::isfinite(call.scale) && call.scale >= 0,
      fmt::format("wanted a finite scale above 0 (0: the usual one), got {}", call.scale));
  check_attention(call.window >= 0 && call.window <= INT32_MAX,
                  fmt::format("wanted a window of 0 to {} keys, got {}", INT32_MAX, call.window));
  check_attention(call.window == 0 || call.causal,
                  "a window counts keys up to the query: it wants causal");
  check_bias(g, op, call);
}

float scale_or_usual(float scale, const HeadShape& h) {
  return scale != 0 ? scale : 1.0f / std::sqrt(static_cast<float>(h.head_dim));
}

Ref ops::attention(Builder& g, const AttentionCall& call) {
  check_call(g, call);
  const HeadShape& h = call.heads;
  const Shape s = g.shape(call.values[0]);
  const Ref out = g.activation("attended", {s[0], s[1], h.heads * h.head_dim}, g.compute());
  const Ref lse = g.activation("lse", {s[0], h.heads, s[1]}, Dtype::kF32);
  std::vector<Ref> inputs = call.values;
  for (Ref r : {call.lengths, call.source_lengths, call.positions, call.source_positions,
                call.table, call.dropout.rate != 0 ? call.dropout.rows : Ref{}}) {
    if (r) inputs.push_back(r);
  }
  g.add(&kAttentionOp, std::move(inputs), {out, lse},
        AttentionAttr{.heads = h,
                      .scale = scale_or_usual(call.scale, h),
                      .padding_attends = call.padding_attends,
                      .dropout = call.dropout.rate,
                      .dropout_seed = call.dropout.seed,
                      .dropout_site = call.dropout.site,
                      .layout = call.layout,
                      .has_source = static_cast<bool>(call.source_lengths),
                      .has_segments = static_cast<bool>(call.positions),
                      .causal = call.causal,
                      .window = call.window,
                      .bias = call.bias,
                      .model_heads = h.heads,
                      .max_distance = call.max_distance});
  return out;
}

Ref ops::attention(Builder& g, Ref qkv, Ref lengths, Ref positions, HeadShape h,
                   bool padding_attends, const DropoutRule& dropout) {
  return attention(g, {.values = {qkv},
                       .heads = h,
                       .lengths = lengths,
                       .padding_attends = padding_attends,
                       .positions = positions,
                       .dropout = dropout});
}

}  // namespace weft
