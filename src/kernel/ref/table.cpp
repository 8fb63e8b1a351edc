// kernel/ref/table.cpp: the reference back end as a table. It needs no scratch.
#include "kernel/ref/ref.h"

namespace weft {
namespace {

template <typename Args>
size_t no_workspace(const Args&, int) {
  return 0;
}

}  // namespace

const Kernels& ref_kernels() {
  static const Kernels table = {
      .name = "ref",
      .gemm = ref::gemm,
      .gemm_workspace = no_workspace<GemmArgs>,
      .embedding = ref::embedding,
      .embedding_backward = ref::embedding_backward,
      .embedding_backward_workspace = no_workspace<EmbeddingBackwardArgs>,
      .rmsnorm = ref::rmsnorm,
      .rmsnorm_backward = ref::rmsnorm_backward,
      .rmsnorm_backward_workspace = no_workspace<RmsNormBackwardArgs>,
      .rope = ref::rope,
      .attention = ref::attention,
      .attention_workspace = no_workspace<AttentionArgs>,
      .attention_backward = ref::attention_backward,
      .attention_backward_workspace = no_workspace<AttentionBackwardArgs>,
      .cached_attention = ref::cached_attention,
      .cached_attention_workspace = no_workspace<CachedAttentionArgs>,
      .swiglu = ref::swiglu,
      .swiglu_backward = ref::swiglu_backward,
      .cross_entropy = ref::cross_entropy,
      .softmax_stats = ref::softmax_stats,
      .softmax_gradient = ref::softmax_gradient,
      .bias_backward = ref::bias_backward,
      .bias_backward_workspace = no_workspace<BiasBackwardArgs>,
      .add = ref::add,
      .squares = ref::squares,
      .adamw = ref::adamw,
  };
  return table;
}

}  // namespace weft
