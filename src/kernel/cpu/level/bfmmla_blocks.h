// kernel/cpu/level/bfmmla_blocks.h: the blocks of attention as bf16, multiplied by BFMMLA.
//
// The instruction adds to a 2 x 2 tile of fp32 the product of 2 rows and 2 columns, four k's each.
// So an operand is packed by pairs of rows (left) or columns (right): for every four k's the four
// elements of the first, then of the second. Weights and dS are rounded to bf16 here, as on GPUs.
// The interface is that of kernel/cpu/level/float_blocks.h.
#pragma once

#include "kernel/cpu/level/float_blocks.h"

#if defined(__ARM_FEATURE_BF16_VECTOR_ARITHMETIC)

namespace weft::WEFT_LEVEL {

struct BfmmlaBlocks {
  using Element = Bf16;
  using Eight = uint16x8_t;

  WEFT_INLINE static Eight load_eight(const Bf16* from, int64_t n) {
    if (n >= 8) return vld1q_u16(&from->bits);
    Bf16 lanes[8] = {};
    for (int64_t i = 0; i < n; ++i) lanes[i] = from[i];
    return vld1q_u16(&lanes[0].bits);
  }
  WEFT_INLINE static Eight round_eight(const float* from) {
    const bfloat16x8_t low = vcvtq_low_bf16_f32(vld1q_f32(from));
    return vreinterpretq_u16_bf16(vcvtq_high_bf16_f32(low, vld1q_f32(from + 4)));
  }
  // Eight elements of each of two rows: two groups of four.
  WEFT_INLINE static void store_pair(Bf16* to, Eight a, Eight b) {
    const uint64x2_t first = vreinterpretq_u64_u16(a), second = vreinterpretq_u64_u16(b);
    vst1q_u16(&to[0].bits, vreinterpretq_u16_u64(vzip1q_u64(first, second)));
    vst1q_u16(&to[8].bits, vreinterpretq_u16_u64(vzip2q_u64(first, second)));
  }
  // Eight columns of four rows (the k's): four pairs of columns, `step` apart.
  WEFT_INLINE static void store_columns(Bf16* to, int64_t step, Eight r0, Eight r1, Eight r2,
                                        Eight r3) {
    const uint32x4_t a = vreinterpretq_u32_u16(vzip1q_u16(r0, r1));
    const uint32x4_t b = vreinterpretq_u32_u16(vzip1q_u16(r2, r3));
    const uint32x4_t c = vreinterpretq_u32_u16(vzip2q_u16(r0, r1));
    const uint32x4_t d = vreinterpretq_u32_u16(vzip2q_u16(r2, r3));
    vst1q_u16(&to[0].bits, vreinterpretq_u16_u32(vzip1q_u32(a, b)));
    vst1q_u16(&to[step].bits, vreinterpretq_u16_u32(vzip2q_u32(a, b)));
    vst1q_u16(&to[2 * step].bits, vreinterpretq_u16_u32(vzip1q_u32(c, d)));
    vst1q_u16(&to[3 * step].bits, vreinterpretq_u16_u32(vzip2q_u32(c, d)));
  }

  static void pack_rows(const Bf16* from, int64_t ld, int64_t rows, int64_t D, Bf16* to,
                        int64_t all_rows, Bf16*) {
    const int64_t Dp = padded(D);
    for (int64_t r = 0; r < all_rows; r += 2) {
      for (int64_t next = r + kRowsAhead; next < lesser(rows, r + kRowsAhead + 2); ++next)
        prefetch_row(from + next * ld, D);
      for (int64_t k = 0; k < Dp; k += 8) {
        const Eight a = load_eight(from + r * ld + k, r < rows ? D - k : 0);
        const Eight b = load_eight(from + (r + 1) * ld + k, r + 1 < rows ? D - k : 0);
        store_pair(to + r * Dp + 2 * k, a, b);
      }
    }
  }
  static void pack_right(const Bf16* from, int64_t ld, int64_t rows, int64_t D, Bf16* to) {
    for (int64_t k = 0; k < kBlock; k += 4) {
      for (int64_t next = k + kRowsAhead; next < lesser(rows, k + kRowsAhead + 4); ++next)
        prefetch_row(from + next * ld, D);
      for (int64_t n = 0; n < padded(D); n += 8) {
        const auto row = [&](int64_t r) {
          return load_eight(from + r * ld + n, r < rows ? D - n : 0);
        };
        store_columns(to + n * kBlock + 2 * k, 2 * kBlock, row(k), row(k + 1), row(k + 2),
                      row(k + 3));
      }
    }
  }

  static void pack_both(const Bf16* from, int64_t ld, int64_t rows, int64_t D, Bf16* to,
                        Bf16* right) {
    pack_rows(from, ld, rows, D, to, kBlock, nullptr);
    pack_right(from, ld, rows, D, right);
  }

  static void scores(int64_t N, int64_t begin, int64_t Dp, const Bf16* left, const Bf16* right,
                     float* s, Shape shape) {
    multiply<Old::kReplace>(kBlock, N - begin, Dp, Dp, left, right + begin * Dp, s, N, shape,
                            nullptr);
  }
  template <Old kOld>
  static void weighted(int64_t M, int64_t K, int64_t Dp, const float* s, int64_t ld,
                       const Bf16* right, float* c, Shape shape, Bf16* staging,
                       const float* scale = nullptr) {
    for (int64_t k = 0; k < K; k += 4) {
      for (int64_t m = 0; m < M; m += 8) {
        const float* at = s + k * ld + m;
        store_columns(staging + m * kBlock + 2 * k, 2 * kBlock, round_eight(at),
                      round_eight(at + ld), round_eight(at + 2 * ld), round_eight(at + 3 * ld));
      }
    }
    multiply<kOld>(M, Dp, K, kBlock, staging, right, c, Dp, shape, scale);
  }
  static void weighted_rows(int64_t M, int64_t Dp, const float* s, const Bf16* right, float* c,
                            Shape shape, Bf16* staging) {
    for (int64_t r = 0; r < M; r += 2) {
      for (int64_t k = 0; k < kBlock; k += 8) {
        store_pair(staging + r * kBlock + 2 * k, round_eight(s + r * kBlock + k),
                   round_eight(s + (r + 1) * kBlock + k));
      }
    }
    multiply<Old::kAdd>(M, Dp, kBlock, kBlock, staging, right, c, Dp, shape, nullptr);
  }

  WEFT_INLINE static Vec first_halves(Vec a, Vec b) {
    return vreinterpretq_f32_f64(vzip1q_f64(vreinterpretq_f64_f32(a), vreinterpretq_f64_f32(b)));
  }
  WEFT_INLINE static Vec second_halves(Vec a, Vec b) {
    return vreinterpretq_f32_f64(vzip2q_f64(vreinterpretq_f64_f32(a), vreinterpretq_f64_f32(b)));
  }
  WEFT_INLINE static bfloat16x8_t load_pair(const Bf16* p) {
    return vreinterpretq_bf16_u16(vld1q_u16(&p->bits));
  }

  // C (M, N) (+)= A · B by tiles of 8 x 8; both operands were packed with room for `stride` k's.
  template <Old kOld>
  [[gnu::noinline]] static void multiply(int64_t M, int64_t N, int64_t K, int64_t stride,
                                         const Bf16* a, const Bf16* b, float* c, int64_t ldc,
                                         Shape shape, const float* scale) {
    for (int64_t m0 = 0; m0 < M; m0 += 8) {
      const Extent extent = extent_of(shape, m0, 8, N, K);
      for (int64_t n0 = extent.first_column / 8 * 8; n0 < extent.last_column; n0 += 8) {
        float* tile = c + m0 * ldc + n0;
        Vec sums[4][4];
#pragma GCC unroll 4
        for (int p = 0; p < 4; ++p) {
#pragma GCC unroll 2
          for (int q = 0; q < 4; q += 2) {
            if constexpr (kOld == Old::kReplace) {
              sums[p][q] = sums[p][q + 1] = zero();
            } else {
              Vec even = load(tile + 2 * p * ldc + 2 * q);
              Vec odd = load(tile + (2 * p + 1) * ldc + 2 * q);
              if constexpr (kOld == Old::kScaleAndAdd) {
                even = even * splat(scale[m0 + 2 * p]);
                odd = odd * splat(scale[m0 + 2 * p + 1]);
              }
              sums[p][q] = first_halves(even, odd);
              sums[p][q + 1] = second_halves(even, odd);
            }
          }
        }
        const Bf16* a_tile = a + m0 * stride;
        const Bf16* b_tile = b + n0 * stride;
        for (int64_t k = 2 * extent.first_k; k < 2 * extent.last_k; k += 8) {
          bfloat16x8_t rows[4], cols[4];
#pragma GCC unroll 4
          for (int p = 0; p < 4; ++p) {
            rows[p] = load_pair(a_tile + 2 * p * stride + k);
            cols[p] = load_pair(b_tile + 2 * p * stride + k);
          }
#pragma GCC unroll 4
          for (int p = 0; p < 4; ++p) {
#pragma GCC unroll 4
            for (int q = 0; q < 4; ++q) sums[p][q] = vbfmmlaq_f32(sums[p][q], rows[p], cols[q]);
          }
        }
#pragma GCC unroll 4
        for (int p = 0; p < 4; ++p) {
#pragma GCC unroll 2
          for (int q = 0; q < 4; q += 2) {
            store(tile + 2 * p * ldc + 2 * q, first_halves(sums[p][q], sums[p][q + 1]));
            store(tile + (2 * p + 1) * ldc + 2 * q, second_halves(sums[p][q], sums[p][q + 1]));
          }
        }
      }
    }
  }
};

}  // namespace weft::WEFT_LEVEL

#endif
