// graph/ops/cached_attention.cpp: forward only; heads are independent, so a rank computes some.
#include "graph/ops/cached_attention.h"

#include "base/error.h"
#include "graph/localizer.h"
#include "graph/ops/fill_cache.h"

namespace weft {
namespace {

std::vector<Shape> cached_attention_shapes(const Graph& graph, const Node& node) {
  const Shape& value = graph[node.inputs[0]].shape;
  const HeadShape& h = node.as<CachedAttentionAttr>().heads;
  return {{value[0], value[1], h.heads * h.head_dim}};
}

std::vector<Placement> place_cached_attention(const Node& node, const std::vector<Placement>& in) {
  const Placement p = place_along(node, in, {0});
  const bool has_table = node.as<CachedAttentionAttr>().bias == ScoreBias::kRelative;
  if (has_table && in.back() != table_placement(p)) refuse_placement(node, in);
  return {p};
}

void localize_cached_attention(Localizer* l, const Node& node) {
  CachedAttentionAttr attr = node.as<CachedAttentionAttr>();
  const Ref value = node.inputs[0];
  attr.heads = heads_of_rank(l, node.op, attr.layout, attr.heads, {value});
  if (l->placement(value).is_cut(2)) attr.first_head = l->mesh().rank * attr.heads.heads;
  cut_caches(l, node.inputs[2], node.inputs[3], attr.heads.kv_heads);
  l->push_plain(node, attr);
}

void check_cached_attention(bool ok, const std::string& what) {
  check_operands(ok, &kCachedAttentionOp, what);
}

Ref attended(Builder& g, const Shape& s, const HeadShape& h) {
  return g.activation("attended", {s[0], s[1], h.heads * h.head_dim}, g.compute());
}

}  // namespace

const OpRule kCachedAttentionOp = {
    .name = "cached_attention",
    .traits = {.reads_one_piece = true},  // a relative table, cut by heads
    .shapes = cached_attention_shapes,
    .place = place_cached_attention,
    .localize = localize_cached_attention,
    .gradient = not_differentiable,
    .repeat = not_repeated,
    .in_place = not_in_place,
    .flops = no_flops,
};

Ref ops::cached_attention(Builder& g, const CachedAttentionCall& call) {
  const HeadShape& h = call.heads;
  check_cached_attention(
      call.layout == QkvLayout::kPacked || call.layout == QkvLayout::kInterleaved,
      "q, k and v are in one value");
  AttentionCall scores;
  scores.heads = h;
  scores.window = call.window;
  scores.scale = call.scale;
  scores.bias = call.bias;
  scores.table = call.table;
  scores.max_distance = call.max_distance;
  check_scores(g, &kCachedAttentionOp, scores);
  check_cached_attention(call.starts && g.shape(call.starts) == Shape{g.shape(call.value)[0]},
                         "wanted the position at which each row continues");
  fill_cache(g, call.layout, call.value, h, call.lengths, call.k_cache, call.v_cache, call.starts);
  std::vector<Ref> inputs = {call.value, call.lengths, call.k_cache, call.v_cache, call.starts};
  if (call.table) inputs.push_back(call.table);
  const Ref out = attended(g, g.shape(call.value), h);
  g.add(&kCachedAttentionOp, std::move(inputs), {out},
        CachedAttentionAttr{.heads = h,
                            .scale = scale_or_usual(call.scale, h),
                            .layout = call.layout,
                            .model_heads = h.heads,
                            .window = call.window,
                            .bias = call.bias,
                            .max_distance = call.max_distance});
  return out;
}

Ref ops::cached_attention(Builder& g, const CachedSourceCall& call) {
  const HeadShape& h = call.heads;
  const Shape q = g.shape(call.q);
  check_cached_attention(
      q.size() == 3 && q[2] == h.heads * h.head_dim,
      fmt::format("wanted (B, T, {}), got {}", h.heads * h.head_dim, to_string(q)));
  for (Ref cache : {call.k_cache, call.v_cache}) {
    const Shape& c = g.shape(cache);
    check_cached_attention(
        c.size() == 4 && c[0] == q[0] && c[2] == h.kv_heads && c[3] == h.head_dim,
        fmt::format("the cache {} does not fit q {}", to_string(c), to_string(q)));
  }
  for (Ref lengths : {call.lengths, call.source_lengths})
    check_cached_attention(g.shape(lengths) == Shape{q[0]},
                           "wanted one length of each side per row");
  AttentionCall scores;
  scores.heads = h;
  scores.scale = call.scale;
  check_scores(g, &kCachedAttentionOp, scores);
  const Ref out = attended(g, q, h);
  g.add(&kCachedAttentionOp,
        {call.q, call.lengths, call.k_cache, call.v_cache, call.source_lengths}, {out},
        CachedAttentionAttr{.heads = h,
                            .scale = scale_or_usual(call.scale, h),
                            .layout = QkvLayout::kQAndKv,
                            .model_heads = h.heads});
  return out;
}

Ref ops::cached_attention(Builder& g, Ref qkv, Ref starts, Ref lengths, Ref k_cache, Ref v_cache,
                          HeadShape h) {
  return cached_attention(g, {.value = qkv,
                              .heads = h,
                              .starts = starts,
                              .lengths = lengths,
                              .k_cache = k_cache,
                              .v_cache = v_cache});
}

}  // namespace weft
