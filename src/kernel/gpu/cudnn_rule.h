// kernel/gpu/cudnn_rule.h: which attention cuDNN may handle, by its arguments alone.
//
// Used by the kernels, and by estimates, which are also made without a GPU. Not cuDNN's: biases
// (its ALiBi derives the slopes from the number of local heads, and its bias gradient is stored as
// T x S) and dropout (its draws do not depend on logical positions).
#pragma once

#include <algorithm>

#include "kernel/cuda/attention_pieces.h"
#include "kernel/kernels.h"

namespace weft {

// 0 where the window holds all keys of the plan's longest row: attention then has the bits of none.
inline int64_t effective_window(const AttentionOperands& args) {
  return args.window < std::max(args.S, args.longest_source) ? args.window : 0;
}

// Causal self-attention does not need the lengths: a query below the length sees no key past it.
// Otherwise cuDNN masks padding by the lengths.
inline bool needs_padding_mask(const AttentionOperands& args) { return !args.causal; }

// Causal self-attention, of packed rows or with a window; or attention to all keys of a row. In
// every form what lies past the lengths is filled afterwards, so there must be lengths.
inline bool is_cudnn_form(const AttentionOperands& args) {
  if (args.bias.kind != AttentionBias::Kind::kNone || args.dropout.rate != 0) return false;
  if (args.lengths == nullptr || args.source_lengths == nullptr) return false;
  if (args.causal) return !args.has_source && (effective_window(args) == 0 || !args.positions);
  return effective_window(args) == 0 && !args.positions && !args.source_positions;
}

// Whether cuDNN may handle it in exact mode: a row's bits must not depend on its batch. That was
// tested of the plain causal kernel; of kernels with a mask of segments, a window or lengths it is
// unknown, while of the built-in kernel it is so by construction.
inline bool is_cudnn_form_of_exact_mode(const AttentionOperands& args) {
  return args.causal && effective_window(args) == 0 && !args.positions;
}

// cuDNN reads and writes 16 bytes at a time.
inline bool has_cudnn_strides(const AttentionOperands& args) {
  for (const HeadsIn& heads : {args.q, args.k, args.v}) {
    if (heads.row % 8 != 0 || heads.position % 8 != 0 || heads.head % 8 != 0) return false;
  }
  return args.D % 8 == 0;
}

// One position is not worth a graph, and cuDNN's backward rejects it. All rows of one plan are
// handled alike, whatever their lengths: its memory is laid out for the longest.
inline bool suits_cudnn(const AttentionOperands& args) {
  return args.dtype != Dtype::kF32 && is_cudnn_form(args) && has_cudnn_strides(args) &&
         args.T > 1 && args.S > 1 && args.D <= 256 && args.H % args.G == 0 &&
         cuda::attention_pieces(args.B, std::max(args.T, args.longest),
                                std::max(args.S, args.longest_source), args.H, args.G, args.D)
                 .bytes > 0;
}

}  // namespace weft
