// kernel/cuda/mma.h: the tensor cores' product of small bf16 or fp16 matrices, and how they read
// them.
//
// Fragments (PTX ISA, mma.m16n8k16): lane l holds, with row r = l / 4 and pair c = 2 (l % 4),
//   a[0] (r, c) (r, c+1)   a[1] (r+8, c) ..   a[2] (r, c+8) ..   a[3] (r+8, c+8) ..   of A (16, 16)
//   b[0] (c, r) (c+1, r)   b[1] (c+8, r) (c+9, r)                                     of B (16, 8)
//   d[0] (r, c)   d[1] (r, c+1)   d[2] (r+8, c)   d[3] (r+8, c+1)                     of D (16, 8)
// GPUs of compute capability 7.5 have half of it for fp16 (k8: a[0], a[1], b[0]) and nothing for
// bf16, and the CPU of the tests has neither: there it is emulated slowly, through shared memory.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "kernel/cuda/values.h"

namespace weft::cuda {

__device__ __forceinline__ int lane_of_warp() { return static_cast<int>(threadIdx.x % 32); }

inline constexpr int kMaxMmaThreads = 128;  // of a block

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 750

// Four 8 x 8 matrices out of shared memory: lane l passes the address of row l % 8 of matrix l / 8
// (16-byte aligned). It gets from each the pair (l / 4, 2 (l % 4)); transposed: of each transposed.
template <typename T>
__device__ __forceinline__ void load_matrices(uint32_t (&to)[4], const T* row) {
  const auto at = static_cast<uint32_t>(__cvta_generic_to_shared(row));
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
               : "r"(at)
               : "memory");
}
template <typename T>
__device__ __forceinline__ void load_matrices_transposed(uint32_t (&to)[4], const T* row) {
  const auto at = static_cast<uint32_t>(__cvta_generic_to_shared(row));
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
               : "r"(at)
               : "memory");
}

#else

// What the lanes of a warp exchange, by thread of the block.
__device__ inline const void** mma_rows() {
  __shared__ const void* rows[kMaxMmaThreads];
  return rows + threadIdx.x / 32 * 32;
}

template <typename T>
__device__ inline void load_matrices(uint32_t (&to)[4], const T* row) {
  const void** rows = mma_rows();
  const int lane = lane_of_warp();
  rows[lane] = row;
  __syncwarp();
  for (int i = 0; i < 4; ++i) {
    const T* at = static_cast<const T*>(rows[8 * i + lane / 4]) + lane % 4 * 2;
    to[i] = at[0].bits | static_cast<uint32_t>(at[1].bits) << 16;
  }
  __syncwarp();
}
template <typename T>
__device__ inline void load_matrices_transposed(uint32_t (&to)[4], const T* row) {
  const void** rows = mma_rows();
  const int lane = lane_of_warp();
  rows[lane] = row;
  __syncwarp();
  for (int i = 0; i < 4; ++i) {
    const T* first = static_cast<const T*>(rows[8 * i + lane % 4 * 2]);
    const T* second = static_cast<const T*>(rows[8 * i + lane % 4 * 2 + 1]);
    to[i] = first[lane / 4].bits | static_cast<uint32_t>(second[lane / 4].bits) << 16;
  }
  __syncwarp();
}

#endif

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800

// d += a · b
__device__ __forceinline__ void mma(Bf16, float (&d)[4], const uint32_t (&a)[4], uint32_t b0,
                                    uint32_t b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
      "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
__device__ __forceinline__ void mma(Half, float (&d)[4], const uint32_t (&a)[4], uint32_t b0,
                                    uint32_t b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
      "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

#else

struct MmaExchange {
  uint32_t a[kMaxMmaThreads][4], b[kMaxMmaThreads][2];
};

// sum + x · y over a pair.
template <typename T>
__device__ __forceinline__ float add_pair(uint32_t x, uint32_t y, float sum) {
  float x0, x1, y0, y1;
  unpack_two(T{}, x, x0, x1);
  unpack_two(T{}, y, y0, y1);
  return fmaf(x1, y1, fmaf(x0, y0, sum));
}

template <typename T>
__device__ inline void mma(T, float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  __shared__ MmaExchange all;
  const int self = static_cast<int>(threadIdx.x), lane = lane_of_warp();
  for (int i = 0; i < 4; ++i) all.a[self][i] = a[i];
  all.b[self][0] = b0;
  all.b[self][1] = b1;
  __syncwarp();
  const int row = self - lane % 4, column = self - lane + lane % 4 * 8;
#pragma unroll 1  // the code is long enough already
  for (int k = 0; k < 16; k += 2) {
    const int from = k / 2 % 4, half = k / 8;
    const uint32_t upper = all.a[row + from][2 * half], lower = all.a[row + from][2 * half + 1];
    const uint32_t x = all.b[column + from][half], y = all.b[column + 4 + from][half];
    d[0] = add_pair<T>(upper, x, d[0]);
    d[1] = add_pair<T>(upper, y, d[1]);
    d[2] = add_pair<T>(lower, x, d[2]);
    d[3] = add_pair<T>(lower, y, d[3]);
  }
  __syncwarp();
}

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 750
__device__ __forceinline__ void mma(Half, float (&d)[4], const uint32_t (&a)[4], uint32_t b0,
                                    uint32_t b1) {
  for (int k = 0; k < 2; ++k) {
    asm volatile(
        "mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 "
        "{%0, %1, %2, %3}, {%4, %5}, {%6}, {%0, %1, %2, %3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[2 * k]), "r"(a[2 * k + 1]), "r"(k == 0 ? b0 : b1));
  }
}
#endif

#endif

}  // namespace weft::cuda
