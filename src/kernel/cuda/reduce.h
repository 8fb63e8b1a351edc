// kernel/cuda/reduce.h: reductions over a warp or a block, always in the same order.
#pragma once

#include <cuda_runtime.h>

#include "kernel/cuda/launch.h"

namespace weft::cuda {

struct Plus {
  template <typename T>
  __device__ __forceinline__ T operator()(T a, T b) const {
    return a + b;
  }
};
struct Maximum {
  __device__ __forceinline__ float operator()(float a, float b) const { return fmaxf(a, b); }
};

// Of all lanes, the same bits in each. Lanes i and i ^ step add the same two numbers.
template <typename T, typename Join>
__device__ __forceinline__ T join_warp(T v, Join join) {
#pragma unroll
  for (int step = kWarp / 2; step > 0; step /= 2) v = join(v, __shfl_xor_sync(~0u, v, step));
  return v;
}
template <typename T>
__device__ __forceinline__ T warp_sum(T v) {
  return join_warp(v, Plus{});
}

// Of all threads of a block of one dimension (whole warps), the same bits in each; `none` is the
// neutral element. All threads must call it.
template <typename T, typename Join>
__device__ __forceinline__ T join_block(T v, T none, Join join) {
  __shared__ T of_warp[kWarp];
  const int lane = threadIdx.x % kWarp;
  v = join_warp(v, join);
  __syncthreads();  // an earlier call may still be read
  if (lane == 0) of_warp[threadIdx.x / kWarp] = v;
  __syncthreads();
  return join_warp(lane < static_cast<int>(blockDim.x) / kWarp ? of_warp[lane] : none, join);
}

}  // namespace weft::cuda
