// kernel/cuda/table.cpp: the CUDA back end as tables.
#include "kernel/cuda/ops.h"

namespace weft {

namespace {

const DeviceKernels kDeviceKernels = {
    .cross_entropy_kept = cuda::cross_entropy_kept,
    .exact_sum = cuda::exact_sum,
    .norm = cuda::norm,
    .adamw_table = cuda::adamw_table,
    .adamw_table_bytes = cuda::adamw_table_bytes,
    .adamw_list = cuda::adamw_list,
    .squares_table = cuda::squares_table,
    .squares_table_bytes = cuda::squares_table_bytes,
    .squares_list = cuda::squares_list,
    .store_sum = cuda::store_sum,
    .round_sum = cuda::round_sum,
    .tell_leaf = cuda::tell_leaf,
    .tell_target = cuda::tell_target,
    .join_leaves = cuda::join_leaves,
    .local_targets = cuda::local_targets,
    .take_rows = cuda::take_rows,
    .reduce_tree = cuda::reduce_tree,
};

}  // namespace

const Kernels* cuda_kernels() {
  static const Kernels table = {
      .name = "cuda",
      .gemm = cuda::gemm,
      .gemm_workspace = cuda::gemm_workspace,
      .embedding = cuda::embedding,
      .embedding_backward = cuda::embedding_backward,
      .embedding_backward_workspace = cuda::embedding_backward_workspace,
      .rmsnorm = cuda::rmsnorm,
      .rmsnorm_backward = cuda::rmsnorm_backward,
      .rmsnorm_backward_workspace = cuda::rmsnorm_backward_workspace,
      .rope = cuda::rope,
      .attention = cuda::attention,
      .attention_workspace = cuda::attention_workspace,
      .attention_backward = cuda::attention_backward,
      .attention_backward_workspace = cuda::attention_backward_workspace,
      .cached_attention = cuda::cached_attention,
      .cached_attention_workspace = cuda::cached_attention_workspace,
      .swiglu = cuda::swiglu,
      .swiglu_backward = cuda::swiglu_backward,
      .cross_entropy = cuda::cross_entropy,
      .softmax_stats = cuda::softmax_stats,
      .softmax_gradient = cuda::softmax_gradient,
      .bias_backward = cuda::bias_backward,
      .bias_backward_workspace = cuda::bias_backward_workspace,
      .add = cuda::add,
      .squares = cuda::squares,
      .adamw = cuda::adamw,
      .device = &kDeviceKernels,
  };
  return &table;
}

}  // namespace weft
