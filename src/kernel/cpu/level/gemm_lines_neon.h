// kernel/cpu/level/gemm_lines_neon.h: a few rows of A times eight lines of B in fp32.
//
// A vector of sums has one line (column of C) and four rows: a lane of B, where k runs along the
// line, is multiplied with one k of four rows of A. So B needs no transposition, only A, which is
// small. In assembly, because g++ 12 orders the loads such that 16 rows take a third longer.
#pragma once

#include <arm_neon.h>

#include "kernel/cpu/level/asm_neon.h"
#include "kernel/cpu/level/gemm_line_block.h"

namespace weft::WEFT_LEVEL {
namespace {

// clang-format off
#define WEFT_LDR(v, from, at) "ldr q" #v ", [%[" #from "], #" #at "]\n"
#define WEFT_LDP(v, w, from, at) "ldp q" #v ", q" #w ", [%[" #from "], #" #at "]\n"
#define WEFT_STP(v, w, at) "stp q" #v ", q" #w ", [%[tile], #" #at "]\n"
#define WEFT_ADD(r, bytes) "add %[" #r "], %[" #r "], #" #bytes "\n"
#define WEFT_SOON(line) "prfm pldl1keep, [%[" #line "], %[soon]]\n"
#define WEFT_LATER(at) "prfm pldl2keep, [%[later], #" #at "]\n"
// Back to 1, for steps. In the last two the start of the lines that come next is prefetched.
#define WEFT_LOOP                                                                            \
  "sub %[steps], %[steps], #1\n"                                                             \
  "cmp %[steps], #2\n"                                                                       \
  "csel %[soon], %[next], %[soon], le\n"                                                     \
  "cbnz %[steps], 1b\n"
// Sums of four lines += a lane of each (v0 to v3, or v4 to v7) times rows of A.
#define WEFT_LOW(c0, c1, c2, c3, a, lane)                            \
  WEFT_FMA(c0, a, 0.s[lane]) WEFT_FMA(c1, a, 1.s[lane])              \
  WEFT_FMA(c2, a, 2.s[lane]) WEFT_FMA(c3, a, 3.s[lane])
#define WEFT_HIGH(c0, c1, c2, c3, a, lane)                           \
  WEFT_FMA(c0, a, 4.s[lane]) WEFT_FMA(c1, a, 5.s[lane])              \
  WEFT_FMA(c2, a, 6.s[lane]) WEFT_FMA(c3, a, 7.s[lane])
#define WEFT_LOW_LINES(at) \
  WEFT_LDR(0, l0, at) WEFT_LDR(1, l1, at) WEFT_LDR(2, l2, at) WEFT_LDR(3, l3, at)
#define WEFT_HIGH_LINES(at) \
  WEFT_LDR(4, l4, at) WEFT_LDR(5, l5, at) WEFT_LDR(6, l6, at) WEFT_LDR(7, l7, at)
#define WEFT_ZERO_SUMS                                                                       \
  WEFT_ZERO(16) WEFT_ZERO(17) WEFT_ZERO(18) WEFT_ZERO(19) WEFT_ZERO(20) WEFT_ZERO(21)        \
  WEFT_ZERO(22) WEFT_ZERO(23) WEFT_ZERO(24) WEFT_ZERO(25) WEFT_ZERO(26) WEFT_ZERO(27)        \
  WEFT_ZERO(28) WEFT_ZERO(29) WEFT_ZERO(30) WEFT_ZERO(31)
#define WEFT_STORE_SUMS                                                                      \
  WEFT_STP(16, 17, 0) WEFT_STP(18, 19, 32) WEFT_STP(20, 21, 64) WEFT_STP(22, 23, 96)         \
  WEFT_STP(24, 25, 128) WEFT_STP(26, 27, 160) WEFT_STP(28, 29, 192) WEFT_STP(30, 31, 224)

// Four k of 4 rows and 8 lines; line i's sum is v(16 + i).
#define WEFT_STEP_4(at, a0, a1, soon0, later0, soon1, later1)                                \
  WEFT_SOON(soon0) WEFT_LATER(later0)                                                        \
  WEFT_LDP(8, 9, a, a0) WEFT_LDP(10, 11, a, a1)                                              \
  WEFT_LOW_LINES(at)                                                                         \
  WEFT_LOW(16, 17, 18, 19, 8, 0) WEFT_LOW(16, 17, 18, 19, 9, 1)                              \
  WEFT_LOW(16, 17, 18, 19, 10, 2) WEFT_LOW(16, 17, 18, 19, 11, 3)                            \
  WEFT_SOON(soon1) WEFT_LATER(later1)                                                        \
  WEFT_HIGH_LINES(at)                                                                        \
  WEFT_HIGH(20, 21, 22, 23, 8, 0) WEFT_HIGH(20, 21, 22, 23, 9, 1)                            \
  WEFT_HIGH(20, 21, 22, 23, 10, 2) WEFT_HIGH(20, 21, 22, 23, 11, 3)

// Four k of 8 rows and 8 lines; line i's sums are v(16 + 2 i) and the next.
#define WEFT_BOTH_8(a, b, lane)                                                              \
  WEFT_LOW(16, 18, 20, 22, a, lane) WEFT_HIGH(24, 26, 28, 30, a, lane)                       \
  WEFT_LOW(17, 19, 21, 23, b, lane) WEFT_HIGH(25, 27, 29, 31, b, lane)
#define WEFT_STEP_8(at)                                                                      \
  WEFT_LOW_LINES(at) WEFT_HIGH_LINES(at)                                                     \
  WEFT_LDP(8, 9, a, 0) WEFT_BOTH_8(8, 9, 0) WEFT_LDP(10, 11, a, 32) WEFT_BOTH_8(10, 11, 1)   \
  WEFT_LDP(12, 13, a, 64) WEFT_BOTH_8(12, 13, 2)                                             \
  WEFT_LDP(14, 15, a, 96) WEFT_BOTH_8(14, 15, 3) WEFT_ADD(a, 128)

// Four k of 16 rows and 4 lines; line i's sums are v(16 + 4 i) and the next three.
#define WEFT_ALL_16(a, b, c, d, lane)                                                        \
  WEFT_LOW(16, 20, 24, 28, a, lane) WEFT_LOW(17, 21, 25, 29, b, lane)                        \
  WEFT_LOW(18, 22, 26, 30, c, lane) WEFT_LOW(19, 23, 27, 31, d, lane)
#define WEFT_STEP_16(at)                                                                     \
  WEFT_LOW_LINES(at)                                                                         \
  WEFT_LDP(4, 5, a, 0) WEFT_LDP(6, 7, a, 32) WEFT_ALL_16(4, 5, 6, 7, 0)                      \
  WEFT_LDP(8, 9, a, 64) WEFT_LDP(10, 11, a, 96) WEFT_ALL_16(8, 9, 10, 11, 1)                 \
  WEFT_LDP(12, 13, a, 128) WEFT_LDP(14, 15, a, 160) WEFT_ALL_16(12, 13, 14, 15, 2)           \
  WEFT_LDP(4, 5, a, 192) WEFT_LDP(6, 7, a, 224) WEFT_ALL_16(4, 5, 6, 7, 3) WEFT_ADD(a, 256)

#define WEFT_NEXT_LOW WEFT_ADD(l0, 64) WEFT_ADD(l1, 64) WEFT_ADD(l2, 64) WEFT_ADD(l3, 64)
#define WEFT_NEXT_HIGH WEFT_ADD(l4, 64) WEFT_ADD(l5, 64) WEFT_ADD(l6, 64) WEFT_ADD(l7, 64)

struct FloatLines {
  using Element = float;
  static constexpr int64_t kStep = 16;  // a cache line

  // The rows that a product of `rows` computes: of a kernel below.
  static int64_t padded(int64_t rows) { return rows <= 4 ? 4 : rows <= 8 ? 8 : 16; }

  // to[k][row] for kRows rows, of which `rows` exist; the others are zero.
  static void pack(const float* a, int64_t lda, int64_t rows, int64_t padded_rows, int64_t K,
                   float* to) {
    for (int64_t row = 0; row < padded_rows; row += 4) {
      const float32x4_t zero = vdupq_n_f32(0.0f);
      for (int64_t k = 0; k < K; k += 4) {
        float32x4_t from[4];
        for (int64_t i = 0; i < 4; ++i)
          from[i] = row + i < rows ? vld1q_f32(a + (row + i) * lda + k) : zero;
        store_transposed(from, to + k * padded_rows + row, padded_rows);
      }
    }
  }

  // tile[row][line] of eight lines.
  template <int kRows>
  static void multiply(const float* a, const LineBlock<float>& b, int64_t K, float* tile) {
    alignas(64) float sums[kRows * kBlockLines];  // [line][row]
    if constexpr (kRows == 4) multiply_4(a, b, K, sums);
    if constexpr (kRows == 8) multiply_8(a, b, K, sums);
    if constexpr (kRows == 16) {
      multiply_16(a, b.line, b.later, K, sums);
      multiply_16(a, b.line + 4, b.later + 4 * K, K, sums + 64);
    }
    for (int row = 0; row < kRows; row += 4) {
      for (int line = 0; line < kBlockLines; line += 4) {
        float32x4_t from[4];
        for (int i = 0; i < 4; ++i) from[i] = vld1q_f32(sums + (line + i) * kRows + row);
        store_transposed(from, tile + row * kBlockLines + line, kBlockLines);
      }
    }
  }

 private:
  static constexpr int64_t kSoon = 128;  // bytes ahead

  static void multiply_4(const float* a, const LineBlock<float>& b, int64_t K, float* tile) {
    int64_t steps = K / kStep, soon = kSoon;
    const int64_t next = soon + 7 * K * 4;
    const float *l0 = b.line[0], *l1 = b.line[1], *l2 = b.line[2], *l3 = b.line[3],
                *l4 = b.line[4], *l5 = b.line[5], *l6 = b.line[6], *l7 = b.line[7],
                *later = b.later;
    asm volatile(WEFT_ZERO_SUMS
                 ".p2align 5\n"
                 "1:\n"
                 WEFT_STEP_4(0, 0, 32, l0, 0, l1, 64)
                 WEFT_STEP_4(16, 64, 96, l2, 128, l3, 192)
                 WEFT_STEP_4(32, 128, 160, l4, 256, l5, 320)
                 WEFT_STEP_4(48, 192, 224, l6, 384, l7, 448)
                 WEFT_NEXT_LOW WEFT_NEXT_HIGH WEFT_ADD(a, 256) WEFT_ADD(later, 512)
                 WEFT_LOOP
                 WEFT_STP(16, 17, 0) WEFT_STP(18, 19, 32) WEFT_STP(20, 21, 64)
                 WEFT_STP(22, 23, 96)
                 : [a] "+&r"(a), [steps] "+&r"(steps), [later] "+&r"(later),
                   [soon] "+&r"(soon), [l0] "+&r"(l0),
                   [l1] "+&r"(l1), [l2] "+&r"(l2), [l3] "+&r"(l3), [l4] "+&r"(l4),
                   [l5] "+&r"(l5), [l6] "+&r"(l6), [l7] "+&r"(l7)
                 : [tile] "r"(tile), [next] "r"(next)
                 : "memory", "cc", WEFT_VECTORS);
  }

  static void multiply_8(const float* a, const LineBlock<float>& b, int64_t K, float* tile) {
    int64_t steps = K / kStep, soon = kSoon;
    const int64_t next = soon + 7 * K * 4;
    const float *l0 = b.line[0], *l1 = b.line[1], *l2 = b.line[2], *l3 = b.line[3],
                *l4 = b.line[4], *l5 = b.line[5], *l6 = b.line[6], *l7 = b.line[7],
                *later = b.later;
    asm volatile(WEFT_ZERO_SUMS
                 ".p2align 5\n"
                 "1:\n"
                 WEFT_SOON(l0) WEFT_SOON(l1) WEFT_LATER(0) WEFT_LATER(64) WEFT_STEP_8(0)
                 WEFT_SOON(l2) WEFT_SOON(l3) WEFT_LATER(128) WEFT_LATER(192) WEFT_STEP_8(16)
                 WEFT_SOON(l4) WEFT_SOON(l5) WEFT_LATER(256) WEFT_LATER(320) WEFT_STEP_8(32)
                 WEFT_SOON(l6) WEFT_SOON(l7) WEFT_LATER(384) WEFT_LATER(448) WEFT_STEP_8(48)
                 WEFT_NEXT_LOW WEFT_NEXT_HIGH WEFT_ADD(later, 512)
                 WEFT_LOOP
                 WEFT_STORE_SUMS
                 : [a] "+&r"(a), [steps] "+&r"(steps), [later] "+&r"(later),
                   [soon] "+&r"(soon), [l0] "+&r"(l0),
                   [l1] "+&r"(l1), [l2] "+&r"(l2), [l3] "+&r"(l3), [l4] "+&r"(l4),
                   [l5] "+&r"(l5), [l6] "+&r"(l6), [l7] "+&r"(l7)
                 : [tile] "r"(tile), [next] "r"(next)
                 : "memory", "cc", WEFT_VECTORS);
  }

  // Of four lines only: sums of eight would need all registers.
  static void multiply_16(const float* a, const float* const* line, const float* later,
                          int64_t K, float* tile) {
    int64_t steps = K / kStep, soon = kSoon;
    const int64_t next = soon + 3 * K * 4;
    const float *l0 = line[0], *l1 = line[1], *l2 = line[2], *l3 = line[3];
    asm volatile(WEFT_ZERO_SUMS
                 ".p2align 5\n"
                 "1:\n"
                 WEFT_SOON(l0) WEFT_LATER(0) WEFT_STEP_16(0)
                 WEFT_SOON(l1) WEFT_LATER(64) WEFT_STEP_16(16)
                 WEFT_SOON(l2) WEFT_LATER(128) WEFT_STEP_16(32)
                 WEFT_SOON(l3) WEFT_LATER(192) WEFT_STEP_16(48)
                 WEFT_NEXT_LOW WEFT_ADD(later, 256)
                 WEFT_LOOP
                 WEFT_STORE_SUMS
                 : [a] "+&r"(a), [steps] "+&r"(steps), [later] "+&r"(later),
                   [soon] "+&r"(soon), [l0] "+&r"(l0),
                   [l1] "+&r"(l1), [l2] "+&r"(l2), [l3] "+&r"(l3)
                 : [tile] "r"(tile), [next] "r"(next)
                 : "memory", "cc", WEFT_VECTORS);
  }

  // from[i][j] to to[j * ld + i].
  [[gnu::always_inline]] static void store_transposed(const float32x4_t* from, float* to,
                                                      int64_t ld) {
    const float32x4_t t0 = vtrn1q_f32(from[0], from[1]), t1 = vtrn2q_f32(from[0], from[1]);
    const float32x4_t t2 = vtrn1q_f32(from[2], from[3]), t3 = vtrn2q_f32(from[2], from[3]);
    const auto low = [](float32x4_t x, float32x4_t y) {
      return vreinterpretq_f32_f64(vzip1q_f64(vreinterpretq_f64_f32(x), vreinterpretq_f64_f32(y)));
    };
    const auto high = [](float32x4_t x, float32x4_t y) {
      return vreinterpretq_f32_f64(vzip2q_f64(vreinterpretq_f64_f32(x), vreinterpretq_f64_f32(y)));
    };
    vst1q_f32(to, low(t0, t2));
    vst1q_f32(to + ld, low(t1, t3));
    vst1q_f32(to + 2 * ld, high(t0, t2));
    vst1q_f32(to + 3 * ld, high(t1, t3));
  }
};
// clang-format on

#undef WEFT_LDR
#undef WEFT_LDP
#undef WEFT_STP
#undef WEFT_ADD
#undef WEFT_SOON
#undef WEFT_LATER
#undef WEFT_LOOP
#undef WEFT_LOW
#undef WEFT_HIGH
#undef WEFT_LOW_LINES
#undef WEFT_HIGH_LINES
#undef WEFT_ZERO_SUMS
#undef WEFT_STORE_SUMS
#undef WEFT_STEP_4
#undef WEFT_BOTH_8
#undef WEFT_STEP_8
#undef WEFT_ALL_16
#undef WEFT_STEP_16
#undef WEFT_NEXT_LOW
#undef WEFT_NEXT_HIGH

}  // namespace
}  // namespace weft::WEFT_LEVEL
