// kernel/cuda/gemm_kernels.h: what stands around the library's products: copies, sums, test data.
#pragma once

#include "kernel/gemm_standard.h"

namespace weft::cuda {

void pack_parts(const Context& context, const PackCall& call);
void add_up(const Context& context, const SumCall& call);
void fill_test_operand(const Context& context, const TestOperand& operand);

}  // namespace weft::cuda
