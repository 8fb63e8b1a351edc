// kernel/cuda/launch.h: launches kernels on the context's stream, with error checks.
//
// Kernels are launched by a function, not by <<<>>>, so that the tests can compile the same files
// as plain C++ and run them on the CPU (tests/kernel/emulated_cuda/).
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "kernel/kernels.h"
#include "tensor/cuda/check.h"

// T* name = the block's dynamic shared memory, 16-byte aligned (the tests have their own form).
#ifndef WEFT_DYNAMIC_SHARED
#define WEFT_DYNAMIC_SHARED(T, name)                                   \
  extern __shared__ __align__(16) unsigned char weft_dynamic_shared[]; \
  T* name = reinterpret_cast<T*>(weft_dynamic_shared)
// The same, aligned to 1024 bytes.
#define WEFT_ALIGNED_SHARED(T, name)                                     \
  extern __shared__ __align__(1024) unsigned char weft_aligned_shared[]; \
  T* name = reinterpret_cast<T*>(weft_aligned_shared)
#endif

namespace weft::cuda {

inline cudaStream_t stream_of(const Context& context) {
  return static_cast<cudaStream_t>(context.stream);
}

inline constexpr int kWarp = 32;

inline int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

// kernel<<<blocks, threads, shared_bytes>>>(args...) on the context's stream. No-op where there are
// no blocks.
template <typename... Parameters, typename... Args>
void launch(const Context& context, const char* name, void (*kernel)(Parameters...), dim3 blocks,
            dim3 threads, size_t shared_bytes, Args... args) {
  if (blocks.x == 0 || blocks.y == 0 || blocks.z == 0) return;
  if (shared_bytes > 48 * 1024) {
    check(cudaFuncSetAttribute(reinterpret_cast<const void*>(kernel),
                               cudaFuncAttributeMaxDynamicSharedMemorySize,
                               static_cast<int>(shared_bytes)),
          name);
  }
  cudaLaunchConfig_t config{};
  config.gridDim = blocks;
  config.blockDim = threads;
  config.dynamicSmemBytes = shared_bytes;
  config.stream = stream_of(context);
  check(cudaLaunchKernelEx(&config, kernel, static_cast<Parameters>(args)...), name);
}

}  // namespace weft::cuda
