// tests/kernel/emulated_cuda/table.h: the CUDA back end's own kernels, run on the CPU.
#pragma once

#include "kernel/device_kernels.h"

namespace weft {

// What a library of NVIDIA computes on a GPU is ref's here.
const Kernels& emulated_kernels();
const DeviceKernels& emulated_device_kernels();

}  // namespace weft
