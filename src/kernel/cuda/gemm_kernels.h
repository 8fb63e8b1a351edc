// kernel/cuda/gemm_kernels.h: the steps around the library's products: copies, sums, test data.
#pragma once

#include "kernel/gpu/gemm_standard.h"

namespace weft::cuda {

void pack_parts(const Context& context, const PackCall& call);
void add_up(const Context& context, const SumCall& call);
void fill_test_operand(const Context& context, const TestOperand& operand);
void repeat(const Context& context, const RepeatCall& call);
// *differs = 1 where an element of `to` is not, as a number, what repeat would set; `from` is fp32.
void compare_repeated(const Context& context, const RepeatCall& call, int32_t* differs);

}  // namespace weft::cuda
