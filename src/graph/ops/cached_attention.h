// graph/ops/cached_attention.h: attention of new positions to all cached ones, for generation.
#pragma once

#include "graph/builder.h"
#include "graph/head_shape.h"
#include "graph/op_rule.h"

namespace weft {

// qkv, starts, lengths, k_cache, v_cache -> out
struct CachedAttentionAttr {
  HeadShape heads;
  float scale = 0;
};
extern const OpRule kCachedAttentionOp;

namespace ops {
Ref cached_attention(Builder& g, Ref qkv, Ref starts, Ref lengths, Ref k_cache, Ref v_cache,
                     HeadShape h);
}
}  // namespace weft
