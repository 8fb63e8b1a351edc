// kernel/cuda/async_copy.h: 16-byte asynchronous copies from global to shared memory.
//
// A thread commits a group of its copies, and waits for its groups in the order of commits; then
// it, but no other thread, may read the data. Before compute capability 8.0 a copy is synchronous;
// the tests delay it as long as allowed.
#pragma once

#include "kernel/cuda/values.h"

namespace weft::cuda {

// Both addresses are multiples of 16.
template <typename T>
__device__ __forceinline__ void start_copy(T* shared, const T* global) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  const auto to = static_cast<uint32_t>(__cvta_generic_to_shared(shared));
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(global) : "memory");
#elif defined(__CUDACC__)
  constexpr int kWidth = kPack<T>;
  store_raw<kWidth>(shared, load_raw<kWidth>(global));
#else
  emulated_cuda::start_copy(shared, global, 16);
#endif
}

// The same where is_there; else zeros are stored, and `global` is not read.
template <typename T>
__device__ __forceinline__ void start_copy_or_zero(T* shared, const T* global, bool is_there) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  const auto to = static_cast<uint32_t>(__cvta_generic_to_shared(shared));
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(global),
               "r"(is_there ? 16 : 0)
               : "memory");
#elif defined(__CUDACC__)
  constexpr int kWidth = kPack<T>;
  Raw<T, kWidth> raw{};
  if (is_there) raw = load_raw<kWidth>(global);
  store_raw<kWidth>(shared, raw);
#else
  alignas(16) static const T zeros[kPack<T>] = {};
  emulated_cuda::start_copy(shared, is_there ? global : zeros, 16);
#endif
}

// One word of four bytes, likewise.
__device__ __forceinline__ void start_word_or_zero(float* shared, const float* global,
                                                   bool is_there) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  const auto to = static_cast<uint32_t>(__cvta_generic_to_shared(shared));
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(to), "l"(global),
               "r"(is_there ? 4 : 0)
               : "memory");
#elif defined(__CUDACC__)
  *shared = is_there ? *global : 0.0f;
#else
  static const float zero = 0.0f;
  emulated_cuda::start_copy(shared, is_there ? global : &zero, 4);
#endif
}

__device__ __forceinline__ void close_group() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  asm volatile("cp.async.commit_group;" ::: "memory");
#elif !defined(__CUDACC__)
  emulated_cuda::close_group();
#endif
}

// Until all groups of this thread have arrived except the last kLater.
template <int kLater>
__device__ __forceinline__ void wait_for_groups() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  asm volatile("cp.async.wait_group %0;" ::"n"(kLater) : "memory");
#elif !defined(__CUDACC__)
  emulated_cuda::wait_for_groups(kLater);
#endif
}

}  // namespace weft::cuda
