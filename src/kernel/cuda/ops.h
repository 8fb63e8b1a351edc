// kernel/cuda/ops.h: the operations of a GPU, one by one, as its table holds them.
#pragma once

#include "kernel/device_kernels.h"
#include "kernel/kernels.h"

namespace weft::cuda {

// attention.cpp
void attention(const Context&, const AttentionArgs&);
size_t attention_workspace(const AttentionArgs&, int num_threads);
void attention_backward(const Context&, const AttentionBackwardArgs&);
size_t attention_backward_workspace(const AttentionBackwardArgs&, int num_threads);
void cached_attention(const Context&, const CachedAttentionArgs&);
size_t cached_attention_workspace(const CachedAttentionArgs&, int num_threads);

}  // namespace weft::cuda
