// graph/ops/cached_attention.h: attention of new positions to all cached ones, for generation.
#pragma once

#include "graph/ops/attention.h"

namespace weft {

// value, lengths, k_cache, v_cache, starts or source lengths, [table] -> out
struct CachedAttentionAttr {
  HeadShape heads;
  float scale = 0;
  QkvLayout layout = QkvLayout::kPacked;  // kQAndKv: the value holds q alone, keys are a source's
  int64_t first_head = 0;                 // of the model's heads, the first of this rank
  int64_t model_heads = 0;                // of all ranks
  int64_t window = 0;                     // keys that a query sees at most, its own counted; 0: all
  ScoreBias bias = ScoreBias::kNone;
  int64_t max_distance = 0;  // of the relative table
};
extern const OpRule kCachedAttentionOp;

// One call. Row b has lengths[b] new positions, from starts[b] on; further ones yield zeros. Their
// keys and values are stored in the caches (B, positions, kv_heads, head_dim) first. Scores as
// those of attention (graph/ops/attention.h), causal.
struct CachedAttentionCall {
  QkvLayout layout = QkvLayout::kPacked;  // or kInterleaved
  Ref value;                              // (B, T, columns): q, k and v
  HeadShape heads;
  Ref starts, lengths, k_cache, v_cache;
  int64_t window = 0;
  float scale = 0;  // 0: 1 / sqrt(head_dim)
  ScoreBias bias = ScoreBias::kNone;
  Ref table = {};  // relative: (buckets, heads)
  int64_t max_distance = 0;
};

// Cross attention: queries q (B, T, heads head_dim), lengths[b] of them, to the first
// source_lengths[b] keys of caches that fill_cache filled; not causal.
struct CachedSourceCall {
  Ref q;
  HeadShape heads;
  Ref lengths, source_lengths, k_cache, v_cache;
  float scale = 0;
};

namespace ops {
Ref cached_attention(Builder& g, const CachedAttentionCall& call);
Ref cached_attention(Builder& g, const CachedSourceCall& call);
// Over packed qkv.
Ref cached_attention(Builder& g, Ref qkv, Ref starts, Ref lengths, Ref k_cache, Ref v_cache,
                     HeadShape h);
}  // namespace ops
}  // namespace weft
