// kernel/cpu/level/gemm_tile_neon.h: the fp32 tile of NEON, 8 rows by 12 columns.
//
// 24 accumulators, 3 vectors of B and 2 of A fill 29 of the 32 registers; 24 multiply-adds to
// 5 loads keep four FMA pipes busy.
#pragma once

#include <arm_neon.h>

#include <cstdint>

namespace weft::WEFT_LEVEL {
namespace {

struct FloatTile {
  using Packed = float;
  static constexpr int kMr = 8, kNr = 12, kGroupA = 1, kGroupB = 1, kStep = 1;
  static constexpr int64_t kMaxK = 512;  // panels of 16 and 24 KiB: the L1 cache has 64

  // tile (kMr, kNr) = [tile +] a · b over k steps of packed panels.
  static void multiply(int64_t k_count, const float* a, const float* b, float* tile, bool resume) {
    float32x4_t c[kMr][3];
    for (int i = 0; i < kMr; ++i) {
      for (int j = 0; j < 3; ++j) {
        c[i][j] = resume ? vld1q_f32(tile + i * kNr + j * 4) : vdupq_n_f32(0.0f);
      }
    }
    for (int64_t k = 0; k < k_count; ++k, a += kMr, b += kNr) {
      const float32x4_t a0 = vld1q_f32(a), a1 = vld1q_f32(a + 4);
      const float32x4_t b0 = vld1q_f32(b), b1 = vld1q_f32(b + 4), b2 = vld1q_f32(b + 8);
      __builtin_prefetch(a + 512);
#define WEFT_ROW(row, vector, lane)                             \
  c[row][0] = vfmaq_laneq_f32(c[row][0], b0, vector, lane);     \
  c[row][1] = vfmaq_laneq_f32(c[row][1], b1, vector, lane);     \
  c[row][2] = vfmaq_laneq_f32(c[row][2], b2, vector, lane)
      WEFT_ROW(0, a0, 0);
      WEFT_ROW(1, a0, 1);
      WEFT_ROW(2, a0, 2);
      WEFT_ROW(3, a0, 3);
      WEFT_ROW(4, a1, 0);
      WEFT_ROW(5, a1, 1);
      WEFT_ROW(6, a1, 2);
      WEFT_ROW(7, a1, 3);
#undef WEFT_ROW
    }
    for (int i = 0; i < kMr; ++i) {
      for (int j = 0; j < 3; ++j) vst1q_f32(tile + i * kNr + j * 4, c[i][j]);
    }
  }
};

}  // namespace
}  // namespace weft::WEFT_LEVEL
