// model/traced_attention.h: a layer's self-attention, in training and in generation, and dropout.
#pragma once

#include "graph/builder.h"
#include "graph/ops/attention.h"
#include "model/model.h"
#include "model/traced_inputs.h"

namespace weft {

// Of the inputs that the model declared; none where the graph is not for training.
DropoutRule dropout_rule(const TracedInputs& in, const TraceOptions& options, double rate,
                         int64_t site);

struct SelfAttention {
  int64_t layer = 0;
  HeadShape heads;
  int64_t window = 0;                     // 0: none
  float scale = 0;                        // 0: the usual one
  double dropout = 0;                     // of the probabilities
  QkvLayout layout = QkvLayout::kPacked;  // or kInterleaved
  ScoreBias bias = ScoreBias::kNone;      // or kAlibi
};
// Causal, of qkv in one value: to the keys of the row, or where the graph generates, to those
// cached.
Ref self_attention(Builder& g, const TracedInputs& in, const TraceOptions& options, Ref qkv,
                   const SelfAttention& call);

}  // namespace weft
