// tests/kernel/emulated_cuda/cuda_runtime.h: the CUDA C++ keywords and functions that the kernels
// use, in C++.
//
// With this folder before the real one src/kernel/cuda/*.cu compile as plain C++ and run on the CPU
// (see grid.h). What is missing here is not used by the kernels yet.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>

#include "tests/kernel/emulated_cuda/grid.h"

// NOLINTBEGIN(readability-identifier-naming): the names are CUDA's.

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __shared__ static  // blocks run one after another
#define __launch_bounds__(...)
#define __align__(bytes) __attribute__((aligned(bytes)))
#define WEFT_DYNAMIC_SHARED(T, name) \
  T* name = reinterpret_cast<T*>(::weft::emulated_cuda::dynamic_shared())
#define WEFT_ALIGNED_SHARED(T, name) WEFT_DYNAMIC_SHARED(T, name)

struct alignas(8) float2 {
  float x, y;
};
struct alignas(16) float4 {
  float x, y, z, w;
};
struct alignas(8) uint2 {
  unsigned x, y;
};
struct alignas(16) uint4 {
  unsigned x, y, z, w;
};
inline float2 make_float2(float x, float y) { return {x, y}; }
inline float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }
inline uint2 make_uint2(unsigned x, unsigned y) { return {x, y}; }
inline uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w) { return {x, y, z, w}; }

// Threads that wait for each other.
inline void __syncthreads(int line = __builtin_LINE()) { weft::emulated_cuda::sync_block(line); }
inline void __syncwarp(unsigned mask = ~0u, int line = __builtin_LINE()) {
  weft::emulated_cuda::exchange(mask, 0, 0, line);
}
inline unsigned __ballot_sync(unsigned mask, int is_so, int line = __builtin_LINE()) {
  return weft::emulated_cuda::exchange(mask, is_so != 0, 0, line).ballot;
}
inline int __any_sync(unsigned mask, int is_so, int line = __builtin_LINE()) {
  return __ballot_sync(mask, is_so, line) != 0;
}
inline int __all_sync(unsigned mask, int is_so, int line = __builtin_LINE()) {
  return __ballot_sync(mask, is_so == 0, line) == 0;
}

namespace weft::emulated_cuda {
// The value of lane `source`; this one's where that is outside its group of `width` lanes.
template <typename T>
T shuffle(unsigned mask, T value, int source, int width, int line) {
  static_assert(sizeof(T) <= 8);
  const int first = lane() & ~(width - 1);
  const bool is_inside = source >= first && source < first + width;
  uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof value);
  bits = exchange(mask, bits, is_inside ? source : lane(), line).value;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}
}  // namespace weft::emulated_cuda

template <typename T>
T __shfl_sync(unsigned mask, T v, int source, int width = 32, int line = __builtin_LINE()) {
  const int lane = weft::emulated_cuda::lane();
  const int from = (lane & ~(width - 1)) | (source & (width - 1));
  return weft::emulated_cuda::shuffle(mask, v, from, width, line);
}
template <typename T>
T __shfl_xor_sync(unsigned mask, T v, int bits, int width = 32, int line = __builtin_LINE()) {
  return weft::emulated_cuda::shuffle(mask, v, weft::emulated_cuda::lane() ^ bits, width, line);
}
template <typename T>
T __shfl_down_sync(unsigned mask, T v, unsigned by, int width = 32, int line = __builtin_LINE()) {
  const int from = weft::emulated_cuda::lane() + static_cast<int>(by);
  return weft::emulated_cuda::shuffle(mask, v, from, width, line);
}
template <typename T>
T __shfl_up_sync(unsigned mask, T v, unsigned by, int width = 32, int line = __builtin_LINE()) {
  const int from = weft::emulated_cuda::lane() - static_cast<int>(by);
  return weft::emulated_cuda::shuffle(mask, v, from, width, line);
}

// Integers only: floating-point sums would depend on the order.
#define WEFT_EMULATED_ATOMIC(name, expression)           \
  template <typename T, typename U>                      \
  requires std::is_integral_v<T> T name(T* at, U with) { \
    const T old = *at, value = static_cast<T>(with);     \
    *at = expression;                                    \
    return old;                                          \
  }
WEFT_EMULATED_ATOMIC(atomicAdd, static_cast<T>(old + value))
WEFT_EMULATED_ATOMIC(atomicMax, std::max(old, value))
WEFT_EMULATED_ATOMIC(atomicMin, std::min(old, value))
WEFT_EMULATED_ATOMIC(atomicOr, static_cast<T>(old | value))
WEFT_EMULATED_ATOMIC(atomicExch, value)
#undef WEFT_EMULATED_ATOMIC
inline void __threadfence() {}

// Numbers.
using std::max;
using std::min;
inline unsigned __float_as_uint(float v) { return std::bit_cast<unsigned>(v); }
inline int __float_as_int(float v) { return std::bit_cast<int>(v); }
inline float __uint_as_float(unsigned v) { return std::bit_cast<float>(v); }
inline float __int_as_float(int v) { return std::bit_cast<float>(v); }
inline long long __double_as_longlong(double v) { return std::bit_cast<long long>(v); }
inline double __longlong_as_double(long long v) { return std::bit_cast<double>(v); }
inline int __popc(unsigned v) { return std::popcount(v); }
inline int __ffs(unsigned v) { return v == 0 ? 0 : std::countr_zero(v) + 1; }
inline int __clz(unsigned v) { return std::countl_zero(v); }
inline int __clzll(unsigned long long v) { return std::countl_zero(v); }
inline float rsqrtf(float v) { return 1.0f / std::sqrt(v); }
inline float __fsqrt_rn(float v) { return std::sqrt(v); }
inline float __frcp_rn(float v) { return 1.0f / v; }
inline float __fdividef(float a, float b) { return a / b; }
#define __expf(v) expf(v)  // the C library declares these names for itself
#define __logf(v) logf(v)
#define __log2f(v) log2f(v)

template <typename T>
T __ldg(const T* at) {
  return *at;
}

// The runtime's calls: what is queued is done at once.
enum cudaError_t { cudaSuccess = 0, cudaErrorInvalidValue = 1 };
using cudaStream_t = struct CUstream_st*;
enum cudaMemcpyKind { cudaMemcpyDeviceToDevice = 3, cudaMemcpyDefault = 4 };
enum cudaFuncAttribute { cudaFuncAttributeMaxDynamicSharedMemorySize = 8 };
enum cudaDeviceAttr {
  cudaDevAttrMultiProcessorCount = 16,
  cudaDevAttrMaxSharedMemoryPerBlockOptin = 97
};
struct cudaLaunchConfig_t {
  dim3 gridDim, blockDim;
  std::size_t dynamicSmemBytes;
  cudaStream_t stream;
};

template <typename... Parameters, typename... Args>
cudaError_t cudaLaunchKernelEx(const cudaLaunchConfig_t* config, void (*kernel)(Parameters...),
                               Args... args) {
  weft::emulated_cuda::run_grid(config->gridDim, config->blockDim, config->dynamicSmemBytes,
                                [&] { kernel(args...); });
  return cudaSuccess;
}
inline cudaError_t cudaGetDevice(int* device) {
  *device = 0;
  return cudaSuccess;
}
// A small GPU, so that a block handles several rows and cannot keep a whole one.
inline cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int) {
  *value = attribute == cudaDevAttrMultiProcessorCount ? 2 : 40 << 10;
  return cudaSuccess;
}
inline cudaError_t cudaFuncSetAttribute(const void*, cudaFuncAttribute, int) { return cudaSuccess; }
inline cudaError_t cudaMemsetAsync(void* to, int value, std::size_t bytes, cudaStream_t) {
  std::memset(to, value, bytes);
  return cudaSuccess;
}
inline cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, cudaMemcpyKind,
                                   cudaStream_t) {
  std::memmove(to, from, bytes);
  return cudaSuccess;
}
inline cudaError_t cudaGetLastError() { return cudaSuccess; }
inline const char* cudaGetErrorString(cudaError_t) { return "an emulated error"; }
inline const char* cudaGetErrorName(cudaError_t) { return "cudaErrorEmulated"; }

// NOLINTEND(readability-identifier-naming)
