// kernel/gpu/cudnn_rule.h: which attention cuDNN may handle, by its arguments alone.
//
// Used by the kernels, and by estimates, which are also made without a GPU.
#pragma once

#include <algorithm>

#include "kernel/cuda/attention_pieces.h"
#include "kernel/kernels.h"

namespace weft {

// Causal self-attention over packed qkv without window or bias, the only form that was compared
// with the built-in kernel. Lengths are needed for what is filled past them afterwards. (Its ALiBi
// derives the slopes from the number of local heads, and its bias gradient is stored as T x S.)
inline bool is_plain_attention(const AttentionOperands& args) {
  const int64_t width = (args.H + 2 * args.G) * args.D;
  for (const HeadsIn& heads : {args.q, args.k, args.v}) {
    if (heads.row != args.T * width || heads.position != width || heads.head != args.D)
      return false;
  }
  return args.causal && args.window == 0 && args.bias.kind == AttentionBias::Kind::kNone &&
         args.T == args.S && args.lengths != nullptr && args.lengths == args.source_lengths &&
         args.positions == args.source_positions;
}

// One position is not worth a graph, and cuDNN's backward rejects it; its dropout draws do not
// depend on logical positions. All rows of one plan are handled alike, whatever their lengths: its
// memory is laid out for the longest.
inline bool suits_cudnn(const AttentionOperands& args) {
  return args.dtype != Dtype::kF32 && is_plain_attention(args) && args.T > 1 &&
         args.dropout.rate == 0 && args.D % 8 == 0 && args.D <= 256 && args.H % args.G == 0 &&
         cuda::attention_pieces(args.B, std::max(args.T, args.longest), args.H, args.G, args.D)
                 .bytes > 0;
}

}  // namespace weft
