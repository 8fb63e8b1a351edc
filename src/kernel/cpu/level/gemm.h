// kernel/cpu/level/gemm.h: the matrix product of this instruction level.
#pragma once

#include "kernel/kernels.h"

namespace weft::WEFT_LEVEL {

void gemm(const Context& context, const GemmArgs& args);
size_t gemm_workspace(const GemmArgs& args, int num_threads);

}  // namespace weft::WEFT_LEVEL
