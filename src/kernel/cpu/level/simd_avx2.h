// kernel/cpu/level/simd_avx2.h: vectors of eight floats, AVX2 with FMA. Included by simd.h.
#pragma once

#include "kernel/cpu/level/x86_intrinsics.h"

namespace weft::WEFT_LEVEL {

using Vec = __m256;
using Ivec = __m256i;
using Mask = __m256;  // all bits of a lane, or none
inline constexpr int kLanes = 8;

WEFT_INLINE Vec zero() { return _mm256_setzero_ps(); }
WEFT_INLINE Vec splat(float v) { return _mm256_set1_ps(v); }
WEFT_INLINE Vec fma(Vec a, Vec b, Vec c) { return _mm256_fmadd_ps(a, b, c); }    // a b + c
WEFT_INLINE Vec fnma(Vec a, Vec b, Vec c) { return _mm256_fnmadd_ps(a, b, c); }  // c - a b
WEFT_INLINE Vec maximum(Vec a, Vec b) { return _mm256_max_ps(a, b); }
WEFT_INLINE Vec minimum(Vec a, Vec b) { return _mm256_min_ps(a, b); }
WEFT_INLINE Vec square_root(Vec a) { return _mm256_sqrt_ps(a); }

WEFT_INLINE Mask less(Vec a, Vec b) { return _mm256_cmp_ps(a, b, _CMP_LT_OQ); }
WEFT_INLINE Mask equal(Vec a, Vec b) { return _mm256_cmp_ps(a, b, _CMP_EQ_OQ); }
WEFT_INLINE Vec select(Mask mask, Vec yes, Vec no) { return _mm256_blendv_ps(no, yes, mask); }
WEFT_INLINE Vec zero_where(Mask mask, Vec v) { return _mm256_andnot_ps(mask, v); }
WEFT_INLINE Ivec lanes_below(int n) {
  const Ivec lanes = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
  return _mm256_cmpgt_epi32(_mm256_set1_epi32(n), lanes);
}
WEFT_INLINE Mask first_lanes(int n) { return _mm256_castsi256_ps(lanes_below(n)); }

WEFT_INLINE Vec as_floats(Ivec a) { return _mm256_cvtepi32_ps(a); }
WEFT_INLINE Ivec bits_of(Vec a) { return _mm256_castps_si256(a); }
WEFT_INLINE Vec from_bits(Ivec a) { return _mm256_castsi256_ps(a); }
WEFT_INLINE Ivec splat_int(int32_t v) { return _mm256_set1_epi32(v); }
WEFT_INLINE Ivec plus(Ivec a, Ivec b) { return _mm256_add_epi32(a, b); }
WEFT_INLINE Ivec minus(Ivec a, Ivec b) { return _mm256_sub_epi32(a, b); }
WEFT_INLINE Ivec bit_and(Ivec a, Ivec b) { return _mm256_and_si256(a, b); }
template <int kBits>
WEFT_INLINE Ivec shift_left(Ivec a) {
  return _mm256_slli_epi32(a, kBits);
}
template <int kBits>
WEFT_INLINE Ivec shift_right(Ivec a) {  // keeps the sign
  return _mm256_srai_epi32(a, kBits);
}

// Halves first: lane i with lane i + 4, then i + 2, then i + 1.
WEFT_INLINE float sum_lanes(Vec a) {
  __m128 v = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
  v = _mm_add_ps(v, _mm_movehl_ps(v, v));
  return _mm_cvtss_f32(_mm_add_ss(v, _mm_movehdup_ps(v)));
}
WEFT_INLINE float max_lanes(Vec a) {
  __m128 v = _mm_max_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
  v = _mm_max_ps(v, _mm_movehl_ps(v, v));
  return _mm_cvtss_f32(_mm_max_ss(v, _mm_movehdup_ps(v)));
}
WEFT_INLINE float first_lane(Vec a) { return _mm256_cvtss_f32(a); }

WEFT_INLINE Vec load(const float* p) { return _mm256_loadu_ps(p); }
WEFT_INLINE void store(float* p, Vec v) { _mm256_storeu_ps(p, v); }
WEFT_INLINE Vec load(const Bf16* p) {
  const __m128i half = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(half), 16));
}
// Rounded bits in the high half of every lane, garbage below.
WEFT_INLINE Ivec round_high(Vec v) {
  const Ivec u = _mm256_castps_si256(v);
  const Ivec odd = _mm256_and_si256(_mm256_srli_epi32(u, 16), _mm256_set1_epi32(1));
  const Ivec up = _mm256_add_epi32(u, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff)));
  const Ivec quiet = _mm256_or_si256(u, _mm256_set1_epi32(0x400000));
  const Ivec nan = _mm256_castps_si256(_mm256_cmp_ps(v, v, _CMP_UNORD_Q));
  return _mm256_blendv_epi8(up, quiet, nan);
}
WEFT_INLINE void store(Bf16* p, Vec v) {
  const Ivec high = _mm256_srli_epi32(round_high(v), 16);
  const Ivec packed = _mm256_packus_epi32(high, high);  // each half twice
  const Ivec ordered = _mm256_permute4x64_epi64(packed, 0x08);
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm256_castsi256_si128(ordered));
}
WEFT_INLINE Vec round_to(float, Vec v) { return v; }
WEFT_INLINE Vec round_to(Bf16, Vec v) {
  return _mm256_castsi256_ps(
      _mm256_and_si256(round_high(v), _mm256_set1_epi32(static_cast<int>(0xffff0000))));
}

WEFT_INLINE Vec load_first(const float* p, int n) { return _mm256_maskload_ps(p, lanes_below(n)); }
WEFT_INLINE void store_first(float* p, Vec v, int n) { _mm256_maskstore_ps(p, lanes_below(n), v); }
WEFT_INLINE Vec load_first(const Bf16* p, int n) {
  Bf16 lanes[kLanes] = {};
  for (int i = 0; i < n; ++i) lanes[i] = p[i];
  return load(lanes);
}
WEFT_INLINE void store_first(Bf16* p, Vec v, int n) {
  Bf16 lanes[kLanes];
  store(lanes, v);
  for (int i = 0; i < n; ++i) p[i] = lanes[i];
}

// Four scalars that multiply whole vectors: here they stay in memory and are broadcast one by one.
using Quad = const float*;
WEFT_INLINE Quad load_quad(const float* p) { return p; }
template <int kLane>
WEFT_INLINE Vec fma_quad(Quad a, Vec b, Vec c) {
  return _mm256_fmadd_ps(_mm256_broadcast_ss(a + kLane), b, c);
}
inline constexpr int kTileRows = 4;  // 4 x 2 vectors of sums of 16 registers

// Sums of squares in float64, lane by lane.
struct Squares {
  __m256d low, high;
};
WEFT_INLINE Squares no_squares() { return {_mm256_setzero_pd(), _mm256_setzero_pd()}; }
WEFT_INLINE void add_squares(Squares& sums, Vec v) {
  const __m256d low = _mm256_cvtps_pd(_mm256_castps256_ps128(v));
  const __m256d high = _mm256_cvtps_pd(_mm256_extractf128_ps(v, 1));
  sums.low = _mm256_fmadd_pd(low, low, sums.low);
  sums.high = _mm256_fmadd_pd(high, high, sums.high);
}
WEFT_INLINE void store(double* p, const Squares& sums) {
  _mm256_storeu_pd(p, sums.low);
  _mm256_storeu_pd(p + 4, sums.high);
}

}  // namespace weft::WEFT_LEVEL
