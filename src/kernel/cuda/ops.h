// kernel/cuda/ops.h: the operations of the CUDA back end.
#pragma once

#include "kernel/device_kernels.h"

namespace weft::cuda {

void gemm(const Context& context, const GemmArgs& args);
size_t gemm_workspace(const GemmArgs& args, int num_threads);
void attention(const Context& context, const AttentionArgs& args);
size_t attention_workspace(const AttentionArgs& args, int num_threads);
void attention_backward(const Context& context, const AttentionBackwardArgs& args);
size_t attention_backward_workspace(const AttentionBackwardArgs& args, int num_threads);
void cached_attention(const Context& context, const CachedAttentionArgs& args);
size_t cached_attention_workspace(const CachedAttentionArgs& args, int num_threads);

void embedding(const Context& context, const EmbeddingArgs& args);
void embedding_backward(const Context& context, const EmbeddingBackwardArgs& args);
size_t embedding_backward_workspace(const EmbeddingBackwardArgs& args, int num_threads);
void rmsnorm(const Context& context, const RmsNormArgs& args);
void rmsnorm_backward(const Context& context, const RmsNormBackwardArgs& args);
size_t rmsnorm_backward_workspace(const RmsNormBackwardArgs& args, int num_threads);
void rope(const Context& context, const RopeArgs& args);
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

// Of DeviceKernels.
void cross_entropy_kept(const Context& context, const KeptCrossEntropyArgs& kept);
void exact_sum(const Context& context, const ExactSumArgs& args);
void norm(const Context& context, const NormArgs& args);
int64_t adamw_table(const AdamwItem* items, int64_t count, std::byte* table);
size_t adamw_table_bytes(const AdamwItem* items, int64_t count);
void adamw_list(const Context& context, const AdamwListArgs& args);
int64_t squares_table(const SquaresItem* items, int64_t count, std::byte* table);
size_t squares_table_bytes(const SquaresItem* items, int64_t count);
void squares_list(const Context& context, const SquaresListArgs& args);
void store_sum(const Context& context, const StoreSumArgs& args);
void round_sum(const Context& context, const RoundSumArgs& args);
void tell_leaf(const Context& context, const TellLeafArgs& args);
void tell_target(const Context& context, const TellTargetArgs& args);
void join_leaves(const Context& context, const JoinLeavesArgs& args);
void local_targets(const Context& context, const LocalTargetsArgs& args);
void take_rows(const Context& context, const TakeRowsArgs& args);
void reduce_tree(const Context& context, const ReduceTreeArgs& args);

}  // namespace weft::cuda
