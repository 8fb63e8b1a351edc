// kernel/cpu/level/ops.h: the operations of this instruction level besides the matrix product.
#pragma once

#include "kernel/kernels.h"

namespace weft::WEFT_LEVEL {

void embedding(const Context& context, const EmbeddingArgs& args);
void embedding_backward(const Context& context, const EmbeddingBackwardArgs& args);
size_t embedding_backward_workspace(const EmbeddingBackwardArgs& args, int num_threads);
void rmsnorm(const Context& context, const RmsNormArgs& args);
void rmsnorm_backward(const Context& context, const RmsNormBackwardArgs& args);
size_t rmsnorm_backward_workspace(const RmsNormBackwardArgs& args, int num_threads);
void rope(const Context& context, const RopeArgs& args);
void attention(const Context& context, const AttentionArgs& args);
size_t attention_workspace(const AttentionArgs& args, int num_threads);
void attention_backward(const Context& context, const AttentionBackwardArgs& args);
size_t attention_backward_workspace(const AttentionBackwardArgs& args, int num_threads);
void cached_attention(const Context& context, const CachedAttentionArgs& args);
size_t cached_attention_workspace(const CachedAttentionArgs& args, int num_threads);
void swiglu(const Context& context, const SwigluArgs& args);
void swiglu_backward(const Context& context, const SwigluBackwardArgs& args);
void cross_entropy(const Context& context, const CrossEntropyArgs& args);
void softmax_stats(const Context& context, const SoftmaxStatsArgs& args);
void softmax_gradient(const Context& context, const SoftmaxGradientArgs& args);
void bias_backward(const Context& context, const BiasBackwardArgs& args);
size_t bias_backward_workspace(const BiasBackwardArgs& args, int num_threads);
void add(const Context& context, const AddArgs& args);
void squares(const Context& context, const SquaresArgs& args);
void adamw(const Context& context, const AdamwArgs& args);

}  // namespace weft::WEFT_LEVEL
