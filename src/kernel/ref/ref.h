// kernel/ref/ref.h: the truth for tests: every operation slow and obvious, float64 inside.
#pragma once

#include "kernel/kernels.h"

namespace weft::ref {

inline double get(const void* data, Dtype dtype, int64_t i) { return load_element(data, dtype, i); }
inline void put(void* data, Dtype dtype, int64_t i, double v) {
  store_element(data, dtype, i, static_cast<float>(v));
}
// v as it would be after a trip through memory.
inline double rounded(Dtype dtype, double v) {
  float stored;  // has room for them all
  put(&stored, dtype, 0, v);
  return get(&stored, dtype, 0);
}

// A sum that is whole, and what else goes into its element: each is an fp32 number that some rank
// may have held in memory, so they are added as such. Exact mode lives on that: who adds what must
// not show.
inline double plus_fp32(double sum, double other) {
  return static_cast<float>(sum) + static_cast<float>(other);
}

void gemm(const Context& context, const GemmArgs& args);
void embedding(const Context& context, const EmbeddingArgs& args);
void embedding_backward(const Context& context, const EmbeddingBackwardArgs& args);
void rmsnorm(const Context& context, const RmsNormArgs& args);
void rmsnorm_backward(const Context& context, const RmsNormBackwardArgs& args);
void rope(const Context& context, const RopeArgs& args);
void attention(const Context& context, const AttentionArgs& args);
void attention_backward(const Context& context, const AttentionBackwardArgs& args);
void cached_attention(const Context& context, const CachedAttentionArgs& args);
void swiglu(const Context& context, const SwigluArgs& args);
void swiglu_backward(const Context& context, const SwigluBackwardArgs& args);
void cross_entropy(const Context& context, const CrossEntropyArgs& args);
void softmax_stats(const Context& context, const SoftmaxStatsArgs& args);
void softmax_gradient(const Context& context, const SoftmaxGradientArgs& args);
void bias_backward(const Context& context, const BiasBackwardArgs& args);
void add(const Context& context, const AddArgs& args);
void squares(const Context& context, const SquaresArgs& args);
void adamw(const Context& context, const AdamwArgs& args);

}  // namespace weft::ref
