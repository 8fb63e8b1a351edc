// kernel/cuda/mma.h: the tensor cores' product of small bf16 matrices, and how they read them.
//
// Fragments (PTX ISA, mma.m16n8k16): lane l holds, with row r = l / 4 and pair c = 2 (l % 4),
//   a[0] (r, c) (r, c+1)   a[1] (r+8, c) ..   a[2] (r, c+8) ..   a[3] (r+8, c+8) ..   of A (16, 16)
//   b[0] (c, r) (c+1, r)   b[1] (c+8, r) (c+9, r)                                     of B (16, 8)
//   d[0] (r, c)   d[1] (r, c+1)   d[2] (r+8, c)   d[3] (r+8, c+1)                     of D (16, 8)
// GPUs before compute capability 8.0 have no such instruction, nor has the CPU of the tests: there
// the same is done slowly, through shared memory.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "tensor/dtype.h"

namespace weft::cuda {

__device__ __forceinline__ int lane_of_warp() { return static_cast<int>(threadIdx.x % 32); }

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800

// d += a · b
__device__ __forceinline__ void mma_bf16(float (&d)[4], const uint32_t (&a)[4], uint32_t b0,
                                         uint32_t b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
      "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// Four 8 x 8 matrices out of shared memory: lane l tells the address of row l % 8 of matrix l / 8
// (16-byte aligned). It gets of each the pair (l / 4, 2 (l % 4)); transposed: of each transposed.
__device__ __forceinline__ void load_matrices(uint32_t (&to)[4], const Bf16* row) {
  const auto at = static_cast<uint32_t>(__cvta_generic_to_shared(row));
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
               : "r"(at)
               : "memory");
}
__device__ __forceinline__ void load_matrices_transposed(uint32_t (&to)[4], const Bf16* row) {
  const auto at = static_cast<uint32_t>(__cvta_generic_to_shared(row));
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
               : "r"(at)
               : "memory");
}

#else

// What the lanes of a warp show each other, by thread of the block.
constexpr int kMaxMmaThreads = 128;
struct MmaExchange {
  uint32_t a[kMaxMmaThreads][4], b[kMaxMmaThreads][2];
  const Bf16* rows[kMaxMmaThreads];
};
__device__ inline MmaExchange& mma_exchange() {
  __shared__ MmaExchange exchange;
  return exchange;
}

// sum + x · y over a pair of bf16.
__device__ __forceinline__ float add_pair(uint32_t x, uint32_t y, float sum) {
  sum = fmaf(__uint_as_float(x << 16), __uint_as_float(y << 16), sum);
  return fmaf(__uint_as_float(x & 0xffff0000u), __uint_as_float(y & 0xffff0000u), sum);
}

__device__ inline void mma_bf16(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  MmaExchange& all = mma_exchange();
  const int self = static_cast<int>(threadIdx.x), lane = lane_of_warp();
  for (int i = 0; i < 4; ++i) all.a[self][i] = a[i];
  all.b[self][0] = b0;
  all.b[self][1] = b1;
  __syncwarp();
  const int row = self - lane % 4, column = self - lane + lane % 4 * 8;
#pragma unroll 1  // code that is long enough
  for (int k = 0; k < 16; k += 2) {
    const int from = k / 2 % 4, half = k / 8;
    const uint32_t upper = all.a[row + from][2 * half], lower = all.a[row + from][2 * half + 1];
    const uint32_t x = all.b[column + from][half], y = all.b[column + 4 + from][half];
    d[0] = add_pair(upper, x, d[0]);
    d[1] = add_pair(upper, y, d[1]);
    d[2] = add_pair(lower, x, d[2]);
    d[3] = add_pair(lower, y, d[3]);
  }
  __syncwarp();
}

__device__ inline void load_matrices(uint32_t (&to)[4], const Bf16* row) {
  const Bf16** rows = mma_exchange().rows + threadIdx.x / 32 * 32;
  const int lane = lane_of_warp();
  rows[lane] = row;
  __syncwarp();
  for (int i = 0; i < 4; ++i) {
    const Bf16* at = rows[8 * i + lane / 4] + lane % 4 * 2;
    to[i] = at[0].bits | static_cast<uint32_t>(at[1].bits) << 16;
  }
  __syncwarp();
}
__device__ inline void load_matrices_transposed(uint32_t (&to)[4], const Bf16* row) {
  const Bf16** rows = mma_exchange().rows + threadIdx.x / 32 * 32;
  const int lane = lane_of_warp();
  rows[lane] = row;
  __syncwarp();
  for (int i = 0; i < 4; ++i) {
    const Bf16* first = rows[8 * i + lane % 4 * 2];
    const Bf16* second = rows[8 * i + lane % 4 * 2 + 1];
    to[i] = first[lane / 4].bits | static_cast<uint32_t>(second[lane / 4].bits) << 16;
  }
  __syncwarp();
}

#endif

}  // namespace weft::cuda
