// graph/ops/cached_attention.cpp: forward only, on one rank.
#include "graph/ops/cached_attention.h"

#include <cmath>

#include "base/error.h"

namespace weft {
namespace {

std::vector<Shape> shapes(const Graph& graph, const Node& node) {
  const Shape& qkv = graph[node.inputs[0]].shape;
  const HeadShape& h = node.as<CachedAttentionAttr>().heads;
  return {{qkv[0], qkv[1], h.heads * h.head_dim}};
}

}  // namespace

const OpRule kCachedAttentionOp = {
    .name = "cached_attention",
    .shapes = shapes,
    .place = no_placement,
    .localize = not_localized,
    .gradient = not_differentiable,
    .repeat = not_repeated,
    .in_place = not_in_place,
    .flops = no_flops,
};

Ref ops::cached_attention(Builder& g, Ref qkv, Ref starts, Ref lengths, Ref k_cache, Ref v_cache,
                          HeadShape h) {
  const Shape s = g.shape(qkv);
  const Shape& cached = g.shape(k_cache);
  check_operands(
      cached.size() == 4 && cached[0] == s[0] && cached[2] == h.kv_heads && cached[3] == h.head_dim,
      &kCachedAttentionOp,
      fmt::format("the cache {} does not fit qkv {}", to_string(cached), to_string(s)));
  const Ref out = g.activation("attended", {s[0], s[1], h.heads * h.head_dim}, g.compute());
  g.add(&kCachedAttentionOp, {qkv, starts, lengths, k_cache, v_cache}, {out},
        CachedAttentionAttr{h, 1.0f / std::sqrt(static_cast<float>(h.head_dim))});
  return out;
}

}  // namespace weft
