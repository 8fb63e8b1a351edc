// exec/memory_ops.h: copies and small sums besides the kernels, on host or device.
#pragma once

#include "kernel/device_kernels.h"
#include "tensor/device.h"

namespace weft {

// On the CPU done at once by the calling thread (the communication thread has no pool); on a GPU
// queued.
struct MemoryOps {
  const Kernels* kernels;
  const Context* context;
  Device* device;

  void copy(void* to, const void* from, int64_t bytes) const { device->copy(to, from, bytes); }
  void add(float* to, const float* from, int64_t n) const {  // to += from
    if (kernels->device) return kernels->add(*context, {n, Dtype::kF32, to, from, to});
    for (int64_t i = 0; i < n; ++i) to[i] += from[i];
  }
};

}  // namespace weft
