// tests/kernel/planned_gemm.h: the steps of a planned product, done on the CPU.
#pragma once

#include <vector>

#include "kernel/gpu/gemm_steps.h"

namespace weft {

void run_step(const GemmStep& step);

// A gemm-only backend that plans and executes the steps: what a GPU gets, without one.
const Kernels& planned_kernels();

}  // namespace weft
