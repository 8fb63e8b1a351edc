// kernel/cpu/level/gemm_tile_avx2.h: the fp32 tile of AVX2, 4 rows by 24 columns.
//
// 12 accumulators, 3 vectors of B and a broadcast of A fill the 16 registers: 12 multiply-adds to
// 7 loads. (6 by 16 has as many accumulators and one load more.)
#pragma once

#include <cstdint>

#include "kernel/cpu/level/gemm_intrinsics.h"

namespace weft::WEFT_LEVEL {
namespace {

struct FloatTile {
  using Packed = float;
  static constexpr int kMr = 4, kNr = 24, kGroupA = 1, kGroupB = 1, kStep = 1;
  static constexpr int64_t kMaxK = 256;  // a panel of B of 24 KiB: the L1 cache has 32 or more

  static void prepare() {}

  static void multiply(int64_t k_count, const float* a, const float* b, float* tile, bool resume) {
    __m256 c[kMr][3];
#pragma GCC unroll 4
    for (int i = 0; i < kMr; ++i) {
#pragma GCC unroll 3
      for (int j = 0; j < 3; ++j) {
        c[i][j] = resume ? _mm256_load_ps(tile + i * kNr + j * 8) : _mm256_setzero_ps();
      }
    }
    for (int64_t k = 0; k < k_count; ++k, a += kMr, b += kNr) {
      const __m256 b0 = _mm256_load_ps(b), b1 = _mm256_load_ps(b + 8), b2 = _mm256_load_ps(b + 16);
#pragma GCC unroll 4
      for (int i = 0; i < kMr; ++i) {
        const __m256 row = _mm256_broadcast_ss(a + i);
        c[i][0] = _mm256_fmadd_ps(row, b0, c[i][0]);
        c[i][1] = _mm256_fmadd_ps(row, b1, c[i][1]);
        c[i][2] = _mm256_fmadd_ps(row, b2, c[i][2]);
      }
    }
#pragma GCC unroll 4
    for (int i = 0; i < kMr; ++i) {
#pragma GCC unroll 3
      for (int j = 0; j < 3; ++j) _mm256_store_ps(tile + i * kNr + j * 8, c[i][j]);
    }
  }
};

}  // namespace
}  // namespace weft::WEFT_LEVEL
