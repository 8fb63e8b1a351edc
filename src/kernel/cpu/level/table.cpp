// kernel/cpu/level/table.cpp: the table of this instruction level.
#include "kernel/cpu/level/gemm.h"
#include "kernel/cpu/level/ops.h"

namespace weft::WEFT_LEVEL {
namespace {

constexpr Kernels kTable = {
    .name = WEFT_LEVEL_NAME,
    .gemm = gemm,
    .gemm_workspace = gemm_workspace,
    .embedding = embedding,
    .embedding_backward = embedding_backward,
    .embedding_backward_workspace = embedding_backward_workspace,
    .rmsnorm = rmsnorm,
    .rmsnorm_backward = rmsnorm_backward,
    .rmsnorm_backward_workspace = rmsnorm_backward_workspace,
    .rope = rope,
    .attention = attention,
    .attention_workspace = attention_workspace,
    .attention_backward = attention_backward,
    .attention_backward_workspace = attention_backward_workspace,
    .cached_attention = cached_attention,
    .cached_attention_workspace = cached_attention_workspace,
    .swiglu = swiglu,
    .swiglu_backward = swiglu_backward,
    .cross_entropy = cross_entropy,
    .softmax_stats = softmax_stats,
    .softmax_gradient = softmax_gradient,
    .bias_backward = bias_backward,
    .bias_backward_workspace = bias_backward_workspace,
    .add = add,
    .squares = squares,
    .adamw = adamw,
};

}  // namespace

const Kernels& kernels();
const Kernels& kernels() { return kTable; }

}  // namespace weft::WEFT_LEVEL
