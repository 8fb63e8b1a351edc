// tests/kernel/planned_gemm.h: the steps of a planned product, done on the CPU.
#pragma once

#include <vector>

#include "kernel/gpu/gemm_steps.h"

namespace weft {

void run_step(const GemmStep& step);

// A back end of gemm alone that plans and does the steps: what a GPU gets, without one.
const Kernels& planned_kernels();

}  // namespace weft
