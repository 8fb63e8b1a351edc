// kernel/cpu/level/gemm_lines_bf16.h: a few rows of A times eight lines of B in bf16.
//
// BFMMLA takes four k of two rows and of two lines and yields the four sums. Two lines' vectors of
// eight k are zipped into that order in registers; the rows of A are packed in it.
#pragma once

#include <arm_neon.h>

#include "kernel/cpu/level/gemm_line_block.h"
#include "tensor/dtype.h"

namespace weft::WEFT_LEVEL {
namespace {

struct Bf16Lines {
  using Element = Bf16;
  static constexpr int64_t kStep = 8;

  static int64_t padded(int64_t rows) { return rows <= 2 ? 2 : rows <= 4 ? 4 : rows <= 8 ? 8 : 16; }

  // to[k / 8][k % 8 / 4][pair of rows][row of the pair][k % 4]; a missing row is zero.
  static void pack(const Bf16* a, int64_t lda, int64_t rows, int64_t padded_rows, int64_t K,
                   Bf16* to) {
    for (int64_t row = 0; row < padded_rows; row += 2) {
      for (int64_t k = 0; k < K; k += 8) {
        const uint64x2_t upper = row < rows ? load(a + row * lda + k) : vdupq_n_u64(0);
        const uint64x2_t lower = row + 1 < rows ? load(a + (row + 1) * lda + k) : vdupq_n_u64(0);
        Bf16* at = to + k * padded_rows + 4 * row;
        vst1q_u64(reinterpret_cast<uint64_t*>(at), vzip1q_u64(upper, lower));
        vst1q_u64(reinterpret_cast<uint64_t*>(at + 4 * padded_rows), vzip2q_u64(upper, lower));
      }
    }
  }

  // tile[row][line] of eight lines.
  template <int kRows>
  static void multiply(const Bf16* a, const LineBlock<Bf16>& b, int64_t K, float* tile) {
    constexpr int kLines = kRows <= 4 ? 8 : 4;  // 16 sums at most, and registers for the factors
    for (int line = 0; line < kBlockLines; line += kLines)
      multiply_lines<kRows / 2, kLines>(a, b.line + line, b.later + line * K, K, tile + line);
  }

 private:
  [[gnu::always_inline]] static uint64x2_t load(const Bf16* at) {
    return vreinterpretq_u64_bf16(vld1q_bf16(reinterpret_cast<const bfloat16_t*>(at)));
  }

  template <int kPairs, int kLines>
  static void multiply_lines(const Bf16* a, const Bf16* const* line, const Bf16* later, int64_t K,
                             float* tile) {
    constexpr int64_t kCacheLine = 32, kSoon = 2 * kCacheLine;
    float32x4_t sums[kPairs][kLines / 2];
#pragma GCC unroll 8
    for (int p = 0; p < kPairs; ++p) {
#pragma GCC unroll 8
      for (int j = 0; j < kLines / 2; ++j) sums[p][j] = vdupq_n_f32(0.0f);
    }
    for (int64_t k = 0; k < K; k += kStep) {
      if (k % kCacheLine == 0) {  // near the end, the start of the lines that come next
        const int64_t soon = k + kSoon + (k + kSoon < K ? 0 : (kLines - 1) * K);
#pragma GCC unroll 8
        for (int i = 0; i < kLines; ++i) {
          __builtin_prefetch(line[i] + soon, 0, 3);
          __builtin_prefetch(later + i * kCacheLine, 0, 2);
        }
        later += kLines * kCacheLine;
      }
      bfloat16x8_t right[2][kLines / 2];
#pragma GCC unroll 8
      for (int j = 0; j < kLines / 2; ++j) {
        const uint64x2_t x = load(line[2 * j] + k), y = load(line[2 * j + 1] + k);
        right[0][j] = vreinterpretq_bf16_u64(vzip1q_u64(x, y));
        right[1][j] = vreinterpretq_bf16_u64(vzip2q_u64(x, y));
      }
#pragma GCC unroll 2
      for (int half = 0; half < 2; ++half) {
#pragma GCC unroll 8
        for (int p = 0; p < kPairs; ++p, a += 8) {
          const bfloat16x8_t left = vreinterpretq_bf16_u64(load(a));
#pragma GCC unroll 8
          for (int j = 0; j < kLines / 2; ++j)
            sums[p][j] = vbfmmlaq_f32(sums[p][j], left, right[half][j]);
        }
      }
    }
#pragma GCC unroll 8
    for (int p = 0; p < kPairs; ++p) {
#pragma GCC unroll 8
      for (int j = 0; j < kLines / 2; ++j) {
        vst1_f32(tile + 2 * p * kBlockLines + 2 * j, vget_low_f32(sums[p][j]));
        vst1_f32(tile + (2 * p + 1) * kBlockLines + 2 * j, vget_high_f32(sums[p][j]));
      }
    }
  }
};

}  // namespace
}  // namespace weft::WEFT_LEVEL
