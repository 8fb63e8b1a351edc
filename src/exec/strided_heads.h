// exec/strided_heads.h: heads in the columns of values, and the bias of their scores, as kernels
// take them.
#pragma once

#include "base/error.h"
#include "exec/view.h"
#include "graph/ops/attention.h"
#include "kernel/attention_bias.h"
#include "kernel/packed_qkv.h"

namespace weft {

// Heads that are `step` columns apart in a value (B, positions, columns), from `column` on.
template <typename Data>
StridedHeads<Data> heads_at(Data* data, const Value& value, int64_t column, int64_t step) {
  const int64_t width = value.shape[2];
  return {element_at(data, value.dtype, column), value.shape[1] * width, width, step};
}

// attr: of attention, or of attention over a cache.
template <typename Attr>
AttentionBias bias_of(const View& v, const Attr& attr, Ref table, bool bidirectional) {
  AttentionBias bias;
  switch (attr.bias) {
    case ScoreBias::kNone:
      return bias;
    case ScoreBias::kAlibi:
      bias.kind = AttentionBias::Kind::kAlibi;
      bias.first_head = attr.first_head;
      bias.num_heads = attr.model_heads;
      return bias;
    case ScoreBias::kRelative:
      bias.kind = AttentionBias::Kind::kRelative;
      bias.table = v.at(table);
      bias.buckets = relative_buckets(static_cast<int>(v.value(table).shape[0]), attr.max_distance,
                                      bidirectional);
      return bias;
  }
  throw_bug(__FILE__, __LINE__, "no rule for a bias of the scores");
}

}  // namespace weft
