// kernel/cpu/level/simd_avx512.h: vectors of sixteen floats, AVX-512. Included by simd.h.
//
// VCVTNEPS2BF16 is not used: it flushes subnormals to zero, to_bf16 does not.
#pragma once

#include "kernel/cpu/level/x86_intrinsics.h"

namespace weft::WEFT_LEVEL {

using Vec = __m512;
using Ivec = __m512i;
using Mask = __mmask16;
inline constexpr int kLanes = 16;

WEFT_INLINE Vec zero() { return _mm512_setzero_ps(); }
WEFT_INLINE Vec splat(float v) { return _mm512_set1_ps(v); }
WEFT_INLINE Vec fma(Vec a, Vec b, Vec c) { return _mm512_fmadd_ps(a, b, c); }    // a b + c
WEFT_INLINE Vec fnma(Vec a, Vec b, Vec c) { return _mm512_fnmadd_ps(a, b, c); }  // c - a b
WEFT_INLINE Vec maximum(Vec a, Vec b) { return _mm512_max_ps(a, b); }
WEFT_INLINE Vec minimum(Vec a, Vec b) { return _mm512_min_ps(a, b); }
WEFT_INLINE Vec square_root(Vec a) { return _mm512_sqrt_ps(a); }

WEFT_INLINE Mask less(Vec a, Vec b) { return _mm512_cmp_ps_mask(a, b, _CMP_LT_OQ); }
WEFT_INLINE Mask equal(Vec a, Vec b) { return _mm512_cmp_ps_mask(a, b, _CMP_EQ_OQ); }
WEFT_INLINE Vec select(Mask mask, Vec yes, Vec no) { return _mm512_mask_mov_ps(no, mask, yes); }
WEFT_INLINE Vec zero_where(Mask mask, Vec v) {
  return _mm512_maskz_mov_ps(static_cast<Mask>(~mask), v);
}
WEFT_INLINE Mask first_lanes(int n) { return static_cast<Mask>((1u << n) - 1u); }

WEFT_INLINE Vec as_floats(Ivec a) { return _mm512_cvtepi32_ps(a); }
WEFT_INLINE Ivec bits_of(Vec a) { return _mm512_castps_si512(a); }
WEFT_INLINE Vec from_bits(Ivec a) { return _mm512_castsi512_ps(a); }
WEFT_INLINE Ivec splat_int(int32_t v) { return _mm512_set1_epi32(v); }
WEFT_INLINE Ivec plus(Ivec a, Ivec b) { return _mm512_add_epi32(a, b); }
WEFT_INLINE Ivec minus(Ivec a, Ivec b) { return _mm512_sub_epi32(a, b); }
WEFT_INLINE Ivec bit_and(Ivec a, Ivec b) { return _mm512_and_si512(a, b); }
template <int kBits>
WEFT_INLINE Ivec shift_left(Ivec a) {
  return _mm512_slli_epi32(a, kBits);
}
template <int kBits>
WEFT_INLINE Ivec shift_right(Ivec a) {  // keeps the sign
  return _mm512_srai_epi32(a, kBits);
}

// Halves first: lane i with lane i + 8, then i + 4, i + 2, i + 1.
WEFT_INLINE float sum_lanes(Vec a) {
  const __m256 h = _mm256_add_ps(_mm512_castps512_ps256(a), _mm512_extractf32x8_ps(a, 1));
  __m128 v = _mm_add_ps(_mm256_castps256_ps128(h), _mm256_extractf128_ps(h, 1));
  v = _mm_add_ps(v, _mm_movehl_ps(v, v));
  return _mm_cvtss_f32(_mm_add_ss(v, _mm_movehdup_ps(v)));
}
WEFT_INLINE float max_lanes(Vec a) {
  const __m256 h = _mm256_max_ps(_mm512_castps512_ps256(a), _mm512_extractf32x8_ps(a, 1));
  __m128 v = _mm_max_ps(_mm256_castps256_ps128(h), _mm256_extractf128_ps(h, 1));
  v = _mm_max_ps(v, _mm_movehl_ps(v, v));
  return _mm_cvtss_f32(_mm_max_ss(v, _mm_movehdup_ps(v)));
}
WEFT_INLINE float first_lane(Vec a) { return _mm512_cvtss_f32(a); }

WEFT_INLINE Vec load(const float* p) { return _mm512_loadu_ps(p); }
WEFT_INLINE void store(float* p, Vec v) { _mm512_storeu_ps(p, v); }
WEFT_INLINE Vec widen(__m256i half) {
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(half), 16));
}
WEFT_INLINE Vec load(const Bf16* p) {
  return widen(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
}
// Rounded bits in the high half of every lane, garbage below.
WEFT_INLINE Ivec round_high(Vec v) {
  const Ivec u = _mm512_castps_si512(v);
  const Ivec odd = _mm512_and_si512(_mm512_srli_epi32(u, 16), _mm512_set1_epi32(1));
  const Ivec up = _mm512_add_epi32(u, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff)));
  const Mask nan = _mm512_cmp_ps_mask(v, v, _CMP_UNORD_Q);
  return _mm512_mask_or_epi32(up, nan, u, _mm512_set1_epi32(0x400000));
}
WEFT_INLINE __m256i round_bf16(Vec v) {
  return _mm512_cvtepi32_epi16(_mm512_srli_epi32(round_high(v), 16));
}
WEFT_INLINE void store(Bf16* p, Vec v) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), round_bf16(v));
}
WEFT_INLINE Vec round_to(float, Vec v) { return v; }
WEFT_INLINE Vec round_to(Bf16, Vec v) {
  return _mm512_castsi512_ps(
      _mm512_and_si512(round_high(v), _mm512_set1_epi32(static_cast<int>(0xffff0000))));
}

WEFT_INLINE Vec load_first(const float* p, int n) {
  return _mm512_maskz_loadu_ps(first_lanes(n), p);
}
WEFT_INLINE void store_first(float* p, Vec v, int n) {
  _mm512_mask_storeu_ps(p, first_lanes(n), v);
}
WEFT_INLINE Vec load_first(const Bf16* p, int n) {
  return widen(_mm256_maskz_loadu_epi16(first_lanes(n), p));
}
WEFT_INLINE void store_first(Bf16* p, Vec v, int n) {
  _mm256_mask_storeu_epi16(p, first_lanes(n), round_bf16(v));
}

// Four scalars that multiply whole vectors: here they stay in memory and are broadcast one by one.
using Quad = const float*;
WEFT_INLINE Quad load_quad(const float* p) { return p; }
template <int kLane>
WEFT_INLINE Vec fma_quad(Quad a, Vec b, Vec c) {
  return _mm512_fmadd_ps(_mm512_set1_ps(a[kLane]), b, c);
}
inline constexpr int kTileRows = 8;  // 8 x 2 vectors of sums of 32 registers

// Sums of squares in float64, lane by lane.
struct Squares {
  __m512d low, high;
};
WEFT_INLINE Squares no_squares() { return {_mm512_setzero_pd(), _mm512_setzero_pd()}; }
WEFT_INLINE void add_squares(Squares& sums, Vec v) {
  const __m512d low = _mm512_cvtps_pd(_mm512_castps512_ps256(v));
  const __m512d high = _mm512_cvtps_pd(_mm512_extractf32x8_ps(v, 1));
  sums.low = _mm512_fmadd_pd(low, low, sums.low);
  sums.high = _mm512_fmadd_pd(high, high, sums.high);
}
WEFT_INLINE void store(double* p, const Squares& sums) {
  _mm512_storeu_pd(p, sums.low);
  _mm512_storeu_pd(p + 8, sums.high);
}

}  // namespace weft::WEFT_LEVEL
