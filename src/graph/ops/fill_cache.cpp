// graph/ops/fill_cache.cpp: a rank stores its own heads.
#include "graph/ops/fill_cache.h"

#include "base/error.h"
#include "graph/localizer.h"
#include "graph/ops/linear.h"

namespace weft {
namespace {

std::vector<Shape> no_shapes(const Graph&, const Node&) { return {}; }

std::vector<Placement> place_fill_cache(const Node& node, const std::vector<Placement>& in) {
  place_along(node, in, {0});
  return {};
}

HeadShape local_heads_of(Localizer* l, const Node& node) {
  const auto& [heads, layout] = node.as<FillCacheAttr>();
  const Ref value = node.inputs[0];
  if (layout != QkvLayout::kQAndKv) return heads_of_rank(l, node.op, layout, heads, {value});
  HeadShape h = heads;
  if (!l->placement(value).is_cut(2)) return h;
  const int64_t kv = heads.kv_heads * heads.head_dim;
  check_operands(stacked_widths(*l, value) == std::vector<int64_t>{kv, kv}, node.op,
                 "k and v must be a product with a weight each to be cut by heads");
  h.kv_heads = l->local_shape(value).back() / h.head_dim / 2;
  return h;
}

void localize_fill_cache(Localizer* l, const Node& node) {
  FillCacheAttr attr = node.as<FillCacheAttr>();
  attr.heads = local_heads_of(l, node);
  cut_caches(l, node.inputs[2], node.inputs[3], attr.heads.kv_heads);
  l->push_plain(node, attr);
}

int64_t cached_columns(QkvLayout layout, const HeadShape& h) {
  return layout == QkvLayout::kQAndKv ? 2 * h.kv_heads * h.head_dim : h.columns();
}

void check_fill_cache(bool ok, const std::string& what) { check_operands(ok, &kFillCacheOp, what); }

}  // namespace

const OpRule kFillCacheOp = {
    .name = "fill_cache",
    .shapes = no_shapes,
    .place = place_fill_cache,
    .localize = localize_fill_cache,
    .gradient = not_differentiable,
    .repeat = not_repeated,
    .in_place = not_in_place,
    .flops = no_flops,
};

void cut_caches(Localizer* l, Ref k_cache, Ref v_cache, int64_t kv_heads) {
  for (Ref cache : {k_cache, v_cache}) l->local()[l->one(cache)].shape[2] = kv_heads;
}

void ops::fill_cache(Builder& g, QkvLayout layout, Ref value, HeadShape h, Ref lengths, Ref k_cache,
                     Ref v_cache, Ref starts) {
  const Shape s = g.shape(value);
  const int64_t columns = cached_columns(layout, h);
  check_fill_cache(layout != QkvLayout::kSeparate, "k and v are in one value");
  check_fill_cache(layout != QkvLayout::kInterleaved || h.heads == h.kv_heads,
                   "interleaved heads have a key and a value each");
  check_fill_cache(s.size() == 3 && s[2] == columns,
                   fmt::format("wanted (B, T, {}), got {}", columns, to_string(s)));
  for (Ref cache : {k_cache, v_cache}) {
    const Shape& c = g.shape(cache);
    check_fill_cache(c.size() == 4 && c[0] == s[0] && c[2] == h.kv_heads && c[3] == h.head_dim,
                     fmt::format("the cache {} does not fit {} rows with {} heads of {}",
                                 to_string(c), s[0], h.kv_heads, h.head_dim));
  }
  check_fill_cache(g.shape(lengths) == Shape{s[0]} && (!starts || g.shape(starts) == Shape{s[0]}),
                   "wanted one length and one start per row");
  std::vector<Ref> inputs = {value, lengths, k_cache, v_cache};
  if (starts) inputs.push_back(starts);
  g.add(&kFillCacheOp, std::move(inputs), {}, FillCacheAttr{h, layout});
}

}  // namespace weft
