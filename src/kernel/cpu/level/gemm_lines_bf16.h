// kernel/cpu/level/gemm_lines_bf16.h: a few rows of A times eight lines of B in bf16.
//
// BFMMLA takes four k of two rows and of two lines and yields the four sums. Two lines' vectors of
// eight k are zipped into that order in registers; the rows of A are packed in it.
#pragma once

#include <arm_neon.h>

#include "kernel/cpu/level/asm_neon.h"
#include "kernel/cpu/level/gemm_line_block.h"
#include "tensor/dtype.h"

namespace weft::WEFT_LEVEL {
namespace {

// clang-format off
#define WEFT_FOUR_SUMS(c, a, b) "bfmmla v" #c ".4s, v" #a ".8h, v" #b ".8h\n"
#define WEFT_LDP(v, w, at) "ldp q" #v ", q" #w ", [%[a], #" #at "]\n"
#define WEFT_PAIR_OF_ROWS(c, d, a, low, high) WEFT_FOUR_SUMS(c, a, low) WEFT_FOUR_SUMS(d, a, high)
// Four k of four rows and 4 lines, which lie in `low` and `high`; then two loads of A.
#define WEFT_FOUR_ROWS(c, d, e, f, a, b, low, high, load)                                    \
  WEFT_PAIR_OF_ROWS(c, d, a, low, high) WEFT_PAIR_OF_ROWS(e, f, b, low, high) load
#define WEFT_STP(v, w, at) "stp q" #v ", q" #w ", [%[sums], #" #at "]\n"
// clang-format on

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
    for (int line = 0; line < kBlockLines; line += kLines) {
      if constexpr (kRows == 16) {
        multiply_16(a, b.line + line, b.later + line * K, K, tile + line);
      } else {
        multiply_lines<kRows / 2, kLines>(a, b.line + line, b.later + line * K, K, tile + line);
      }
    }
  }

 private:
  [[gnu::always_inline]] static uint64x2_t load(const Bf16* at) {
    return vreinterpretq_u64_bf16(vld1q_bf16(reinterpret_cast<const bfloat16_t*>(at)));
  }

  // In assembly: g++ 12 keeps the 16 sums in registers, but takes a quarter longer.
  static void multiply_16(const Bf16* a, const Bf16* const* line, const Bf16* later, int64_t K,
                          float* tile) {
    const Bf16 *l0 = line[0], *l1 = line[1], *l2 = line[2], *l3 = line[3];
    int64_t steps = K / kStep, forth = 16;  // bytes to the next step's k; the last reads its own
    alignas(64) float sums[64];             // [two lines][two rows][row][line]
    // clang-format off
    asm volatile(WEFT_ZEROS
                 "ldr q4, [%[l0]]\n"
                 "ldr q5, [%[l1]]\n"
                 "ldr q6, [%[l2]]\n"
                 "ldr q7, [%[l3]]\n"
                 ".p2align 5\n"
                 "1:\n"
                 "subs %[steps], %[steps], #1\n"
                 "csel %[forth], %[forth], xzr, ne\n"
                 WEFT_LDP(8, 9, 0) WEFT_LDP(10, 11, 32) WEFT_LDP(12, 13, 64) WEFT_LDP(14, 15, 96)
                 "prfm pldl2keep, [%[later]]\n"
                 "zip1 v0.2d, v4.2d, v5.2d\n"
                 "zip1 v1.2d, v6.2d, v7.2d\n"
                 "zip2 v2.2d, v4.2d, v5.2d\n"
                 "zip2 v3.2d, v6.2d, v7.2d\n"
                 "ldr q4, [%[l0], %[forth]]\n"
                 "ldr q5, [%[l1], %[forth]]\n"
                 "ldr q6, [%[l2], %[forth]]\n"
                 "ldr q7, [%[l3], %[forth]]\n"
                 WEFT_FOUR_ROWS(16, 24, 17, 25, 8, 9, 0, 1, WEFT_LDP(8, 9, 128))
                 WEFT_FOUR_ROWS(18, 26, 19, 27, 10, 11, 0, 1, WEFT_LDP(10, 11, 160))
                 WEFT_FOUR_ROWS(20, 28, 21, 29, 12, 13, 0, 1, WEFT_LDP(12, 13, 192))
                 WEFT_FOUR_ROWS(22, 30, 23, 31, 14, 15, 0, 1, WEFT_LDP(14, 15, 224))
                 "add %[l0], %[l0], #16\n"
                 "add %[l1], %[l1], #16\n"
                 "add %[l2], %[l2], #16\n"
                 "add %[l3], %[l3], #16\n"
                 WEFT_FOUR_ROWS(16, 24, 17, 25, 8, 9, 2, 3, )
                 WEFT_FOUR_ROWS(18, 26, 19, 27, 10, 11, 2, 3, )
                 WEFT_FOUR_ROWS(20, 28, 21, 29, 12, 13, 2, 3, )
                 WEFT_FOUR_ROWS(22, 30, 23, 31, 14, 15, 2, 3, )
                 "add %[a], %[a], #256\n"
                 "add %[later], %[later], #64\n"
                 "cbnz %[steps], 1b\n"
                 WEFT_STP(16, 17, 0) WEFT_STP(18, 19, 32) WEFT_STP(20, 21, 64)
                 WEFT_STP(22, 23, 96) WEFT_STP(24, 25, 128) WEFT_STP(26, 27, 160)
                 WEFT_STP(28, 29, 192) WEFT_STP(30, 31, 224)
                 : [a] "+&r"(a), [steps] "+&r"(steps), [later] "+&r"(later),
                   [forth] "+&r"(forth), [l0] "+&r"(l0), [l1] "+&r"(l1), [l2] "+&r"(l2), [l3] "+&r"(l3)
                 : [sums] "r"(sums)
                 : "memory", "cc", WEFT_VECTORS);
    // clang-format on
    for (int row = 0; row < 16; ++row) {
      vst1_f32(tile + row * kBlockLines, vld1_f32(sums + 2 * row));
      vst1_f32(tile + row * kBlockLines + 2, vld1_f32(sums + 32 + 2 * row));
    }
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

#undef WEFT_FOUR_SUMS
#undef WEFT_LDP
#undef WEFT_PAIR_OF_ROWS
#undef WEFT_FOUR_ROWS
#undef WEFT_STP

}  // namespace
}  // namespace weft::WEFT_LEVEL
