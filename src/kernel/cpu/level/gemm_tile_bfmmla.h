// kernel/cpu/level/gemm_tile_bfmmla.h: the bf16 tile of ARM's BFMMLA, 8 rows by 12 columns.
//
// One instruction multiplies 2 rows by 4 k with 4 k by 2 columns into a 2 by 2 block, so an
// accumulator holds {c00, c01, c10, c11}. 24 of them, 4 vectors of A and 1 to 4 of B.
#pragma once

#include <arm_neon.h>

#include <cstdint>

#include "tensor/dtype.h"

namespace weft::WEFT_LEVEL {
namespace {

struct Bf16Tile {
  using Packed = Bf16;
  static constexpr int kMr = 8, kNr = 12, kGroupA = 4, kGroupB = 4, kStep = 4;
  static constexpr int64_t kMaxK = 1024;  // panels of 16 and 24 KiB: the L1 cache has 64

  static void multiply(int64_t k_count, const Bf16* a, const Bf16* b, float* tile, bool resume) {
    float32x4_t c[4][6];
    for (int i = 0; i < 4; ++i) {
      for (int j = 0; j < 6; ++j) {
        const float* at = tile + 2 * i * kNr + 2 * j;
        c[i][j] = resume ? vcombine_f32(vld1_f32(at), vld1_f32(at + kNr)) : vdupq_n_f32(0.0f);
      }
    }
    for (int64_t k = 0; k < k_count; k += 4, a += 4 * kMr, b += 4 * kNr) {
      bfloat16x8_t va[4];
#pragma GCC unroll 4
      for (int i = 0; i < 4; ++i) va[i] = load(a + 8 * i);
      __builtin_prefetch(a + 512);
#pragma GCC unroll 6
      for (int j = 0; j < 6; ++j) {
        const bfloat16x8_t vb = load(b + 8 * j);
#pragma GCC unroll 4
        for (int i = 0; i < 4; ++i) c[i][j] = vbfmmlaq_f32(c[i][j], va[i], vb);
      }
    }
    for (int i = 0; i < 4; ++i) {
      for (int j = 0; j < 6; ++j) {
        float* at = tile + 2 * i * kNr + 2 * j;
        vst1_f32(at, vget_low_f32(c[i][j]));
        vst1_f32(at + kNr, vget_high_f32(c[i][j]));
      }
    }
  }

  [[gnu::always_inline]] static bfloat16x8_t load(const Bf16* from) {
    return vld1q_bf16(reinterpret_cast<const bfloat16_t*>(from));
  }
};

}  // namespace
}  // namespace weft::WEFT_LEVEL
