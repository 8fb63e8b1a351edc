// graph/ops/fill_cache.h: keys and values of new positions into caches, for generation.
#pragma once

#include "graph/ops/attention.h"

namespace weft {

// value, lengths, k_cache, v_cache, [starts] -> nothing: it writes the caches.
struct FillCacheAttr {
  HeadShape heads;
  QkvLayout layout = QkvLayout::kPacked;  // kQAndKv: the value holds k and v alone
};
extern const OpRule kFillCacheOp;

// Where tensor parallelism cuts the value by heads, a rank's caches have its key/value heads.
void cut_caches(Localizer* localizer, Ref k_cache, Ref v_cache, int64_t kv_heads);

namespace ops {
// The value (B, T, columns) has the layout's columns, for kQAndKv k and v alone. New positions are
// starts[b] and following (absent: 0), of which those below lengths[b] (counted within T) are
// stored. Caches are (B, positions, kv_heads, head_dim).
void fill_cache(Builder& g, QkvLayout layout, Ref value, HeadShape h, Ref lengths, Ref k_cache,
                Ref v_cache, Ref starts = {});
}  // namespace ops
}  // namespace weft
