// kernel/cuda/gemm_kernels.h: what stands around the library's products: copies, sums, test data.
#pragma once

#include "kernel/gemm_steps.h"

namespace weft::cuda {

void pack_parts(const Context& context, const PackCall& call);
void add_up(const Context& context, const SumCall& call);
// n numbers of [-1, 1), the same for the same seed.
void fill_random(const Context& context, void* to, Dtype dtype, int64_t n, uint64_t seed);

}  // namespace weft::cuda
