// model/traced_attention.cpp: which operation attends, by the inputs that the graph has.
#include "model/traced_attention.h"

#include <fmt/core.h>

#include "graph/ops/cached_attention.h"
#include "tensor/names.h"

namespace weft {
namespace {

Ref cached(Builder& g, const TracedInputs& in, const TraceOptions& o, Ref qkv,
           const SelfAttention& call) {
  const auto cache = [&](const char* which) {
    return g.cache(fmt::format("cache.{}.{}", call.layer, which),
                   {o.batch, o.max_positions, call.heads.kv_heads, call.heads.head_dim});
  };
  const Ref k = cache("k"), v = cache("v");
  return ops::cached_attention(g, {.layout = call.layout,
                                   .value = qkv,
                                   .heads = call.heads,
                                   .starts = in[names::kStarts],
                                   .lengths = in[names::kLengths],
                                   .k_cache = k,
                                   .v_cache = v,
                                   .window = call.window,
                                   .scale = call.scale,
                                   .bias = call.bias});
}

}  // namespace

DropoutRule dropout_rule(const TracedInputs& in, const TraceOptions& o, double rate, int64_t site) {
  const Ref rows = in[names::kRows];
  if (!rows || rate == 0) return {};
  return {.rate = rate, .seed = o.seed, .site = site, .rows = rows};
}

Ref self_attention(Builder& g, const TracedInputs& in, const TraceOptions& o, Ref qkv,
                   const SelfAttention& call) {
  if (in[names::kStarts]) return cached(g, in, o, qkv, call);
  return ops::attention(g, {.layout = call.layout,
                            .values = {qkv},
                            .heads = call.heads,
                            .lengths = in[names::kLengths],
                            .padding_attends = o.learns_padding,
                            .positions = o.packed ? in[names::kPositions] : Ref{},
                            .window = call.window,
                            .scale = call.scale,
                            .bias = call.bias,
                            .dropout = dropout_rule(in, o, call.dropout, call.layer)});
}

}  // namespace weft
