// kernel/gpu/cudnn_rule.h: which attention cuDNN may serve, by its arguments alone.
//
// Beside the kernels that ask it, estimates do, which are also made where there is no GPU.
#pragma once

#include <algorithm>

#include "kernel/cuda/attention_pieces.h"
#include "kernel/kernels.h"

namespace weft {

// Args: AttentionArgs or AttentionBackwardArgs. One position is not worth a graph, and cuDNN's
// backward refuses it; its own draws for dropout know nothing of logical places. Rows of one plan
// are served alike, whatever their lengths: its memory is laid out for the longest.
template <typename Args>
bool suits_cudnn(const Args& args) {
  return args.dtype != Dtype::kF32 && !args.padding_attends && args.T > 1 &&
         args.dropout.rate == 0 && args.D % 8 == 0 && args.D <= 256 && args.H % args.G == 0 &&
         cuda::attention_pieces(args.B, std::max(args.T, args.longest), args.H, args.G, args.D)
                 .bytes > 0;
}

}  // namespace weft
