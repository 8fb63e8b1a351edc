// kernel/cuda/norm_rows.h: how the threads of a block divide rows of C channels.
//
// A thread holds up to kValues values of a row in registers, every x-th vector: so a row is read
// once. A row of up to 1024 channels uses one warp; a wider one several warps (threadIdx.x runs
// along the row), and a block has several rows side by side (threadIdx.y).
#pragma once

#include "kernel/cuda/dispatch.h"
#include "kernel/cuda/reduce.h"
#include "kernel/cuda/values.h"

namespace weft::cuda {

inline constexpr int kValues = 32;
inline constexpr int kMaxRowThreads = 1024;

inline int threads_of_row(int64_t C) {
  static_assert(int64_t{kMaxRowThreads} * kValues == kMostNormChannels);
  if (C > kMostNormChannels) refuse("a norm over too many channels");
  return static_cast<int>(ceil_div(ceil_div(C, kValues), kWarp)) * kWarp;
}

// The sum of v over the threads of a row. `turn` counts the calls: consecutive calls use different
// memory, so that one barrier is enough.
__device__ __forceinline__ float row_sum(float v, int turn) {
  __shared__ float of_warp[2][kMaxRowThreads / kWarp];
  v = warp_sum(v);
  const int warps = blockDim.x / kWarp;
  if (warps == 1) return v;
  float* sums = of_warp[turn % 2] + threadIdx.y * warps;
  if (threadIdx.x % kWarp == 0) sums[threadIdx.x / kWarp] = v;
  __syncthreads();
  v = sums[0];
  for (int i = 1; i < warps; ++i) v += sums[i];
  return v;
}

// A thread's share of a row: vector k is number threadIdx.x + k * blockDim.x.
template <typename T, int kWidth, int kMost = kValues>
struct RowShare {
  static constexpr int kCount = kMost / kWidth;
  Raw<T, kWidth> raw[kCount];

  __device__ __forceinline__ void read(const T* row, int vectors) {
#pragma unroll
    for (int k = 0; k < kCount; ++k) {
      const int i = threadIdx.x + k * blockDim.x;
      if (i < vectors) raw[k] = load_raw<kWidth>(row + i * kWidth);
    }
  }
};

// The sums of a block's rows side by side, in order of row. Two calls need a barrier between them.
template <int kWidth, int kMost>
__device__ __forceinline__ void write_partial(const float (&sums)[kMost], int64_t C,
                                              float* partial) {
  WEFT_DYNAMIC_SHARED(float, of_rows);  // (rows, C)
  const int vectors = static_cast<int>(C / kWidth);
  float* to = blockDim.y == 1 ? partial : of_rows + threadIdx.y * C;
#pragma unroll
  for (int k = 0; k < kMost / kWidth; ++k) {
    const int i = threadIdx.x + k * blockDim.x;
    if (i >= vectors) break;
#pragma unroll
    for (int j = 0; j < kWidth; ++j) to[i * kWidth + j] = sums[k * kWidth + j];
  }
  if (blockDim.y == 1) return;
  __syncthreads();
  for (int c = threadIdx.y * blockDim.x + threadIdx.x; c < C; c += blockDim.x * blockDim.y) {
    float sum = of_rows[c];
    for (unsigned y = 1; y < blockDim.y; ++y) sum += of_rows[y * C + c];
    partial[c] = sum;
  }
}

}  // namespace weft::cuda
