// tests/kernel/emulated_cuda/table.h: the CUDA backend's own kernels, run on the CPU.
#pragma once

#include "kernel/device_kernels.h"

namespace weft {

// What an NVIDIA library computes on a GPU is ref's here.
const Kernels& emulated_kernels();
const DeviceKernels& emulated_device_kernels();

// The padding steps around cuDNN's attention (kernel/cuda/attention.h).
void emulated_zero_padding(const Context&, const AttentionArgs&);
void emulated_raise_padding_lse(const Context&, const AttentionArgs&, float* to);
// The mask of packed rows that cuDNN adds to the scores.
void emulated_segment_mask(const Context&, const AttentionArgs&, void* mask);

}  // namespace weft
