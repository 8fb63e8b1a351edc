// kernel/cuda/ops.h: the operations of the CUDA back end.
#pragma once

#include "kernel/device_kernels.h"

namespace weft::cuda {

void gemm(const Context& context, const GemmArgs& args);
size_t gemm_workspace(const GemmArgs& args, int num_threads);

}  // namespace weft::cuda
