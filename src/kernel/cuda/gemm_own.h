// kernel/cuda/gemm_own.h: a product whose bits are specified here, not by a library.
#pragma once

#include "kernel/gpu/gemm_steps.h"

namespace weft::cuda {

// D = op(A) · op(B) [+ C] [+ bias]. An element is one chain of fused multiply-adds in the order of
// k, started at 0; then C, then the bias, then one rounding to D's type: independent of m, n,
// leading dimensions or the device. Far slower than the library with bf16.
void own_product(const Context& context, const LtCall& call);

}  // namespace weft::cuda
