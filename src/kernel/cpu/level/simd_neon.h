// kernel/cpu/level/simd_neon.h: vectors of four floats, 128-bit NEON. Included by simd.h.
#pragma once

#include <arm_neon.h>

namespace weft::WEFT_LEVEL {

using Vec = float32x4_t;
using Ivec = int32x4_t;
using Mask = uint32x4_t;
inline constexpr int kLanes = 4;

WEFT_INLINE Vec zero() { return vdupq_n_f32(0.0f); }
WEFT_INLINE Vec splat(float v) { return vdupq_n_f32(v); }
WEFT_INLINE Vec fma(Vec a, Vec b, Vec c) { return vfmaq_f32(c, a, b); }   // a b + c
WEFT_INLINE Vec fnma(Vec a, Vec b, Vec c) { return vfmsq_f32(c, a, b); }  // c - a b
WEFT_INLINE Vec maximum(Vec a, Vec b) { return vmaxq_f32(a, b); }         // NaN stays, as b
WEFT_INLINE Vec minimum(Vec a, Vec b) { return vminq_f32(a, b); }
WEFT_INLINE Vec square_root(Vec a) { return vsqrtq_f32(a); }

WEFT_INLINE Mask less(Vec a, Vec b) { return vcltq_f32(a, b); }
WEFT_INLINE Mask equal(Vec a, Vec b) { return vceqq_f32(a, b); }
WEFT_INLINE Vec select(Mask mask, Vec yes, Vec no) { return vbslq_f32(mask, yes, no); }
WEFT_INLINE Vec zero_where(Mask mask, Vec v) {
  return vreinterpretq_f32_u32(vbicq_u32(vreinterpretq_u32_f32(v), mask));
}
WEFT_INLINE Mask first_lanes(int n) {
  const Ivec lanes = {0, 1, 2, 3};
  return vcltq_s32(lanes, vdupq_n_s32(n));
}

WEFT_INLINE Vec as_floats(Ivec a) { return vcvtq_f32_s32(a); }
WEFT_INLINE Ivec bits_of(Vec a) { return vreinterpretq_s32_f32(a); }
WEFT_INLINE Vec from_bits(Ivec a) { return vreinterpretq_f32_s32(a); }
WEFT_INLINE Ivec splat_int(int32_t v) { return vdupq_n_s32(v); }
// They wrap, as in the other instruction sets: g++ makes vaddq_s32 a signed sum, which must not.
WEFT_INLINE Ivec plus(Ivec a, Ivec b) {
  return vreinterpretq_s32_u32(vaddq_u32(vreinterpretq_u32_s32(a), vreinterpretq_u32_s32(b)));
}
WEFT_INLINE Ivec minus(Ivec a, Ivec b) {
  return vreinterpretq_s32_u32(vsubq_u32(vreinterpretq_u32_s32(a), vreinterpretq_u32_s32(b)));
}
WEFT_INLINE Ivec bit_and(Ivec a, Ivec b) { return vandq_s32(a, b); }
template <int kBits>
WEFT_INLINE Ivec shift_left(Ivec a) {
  return vshlq_n_s32(a, kBits);
}
template <int kBits>
WEFT_INLINE Ivec shift_right(Ivec a) {  // keeps the sign
  return vshrq_n_s32(a, kBits);
}

WEFT_INLINE float sum_lanes(Vec a) { return vaddvq_f32(a); }  // (0 + 1) + (2 + 3)
WEFT_INLINE float max_lanes(Vec a) { return vmaxvq_f32(a); }
WEFT_INLINE float first_lane(Vec a) { return vgetq_lane_f32(a, 0); }

WEFT_INLINE Vec load(const float* p) { return vld1q_f32(p); }
WEFT_INLINE void store(float* p, Vec v) { vst1q_f32(p, v); }
WEFT_INLINE Vec load(const Bf16* p) {
  return vreinterpretq_f32_u32(vshll_n_u16(vld1_u16(&p->bits), 16));
}
// BFCVTN and the plain instructions give the same bits, NaN and subnormals included.
#if defined(__ARM_FEATURE_BF16_VECTOR_ARITHMETIC)
WEFT_INLINE uint16x4_t round_bf16(Vec v) { return vreinterpret_u16_bf16(vcvt_bf16_f32(v)); }
#else
WEFT_INLINE uint16x4_t round_bf16(Vec v) {
  const uint32x4_t u = vreinterpretq_u32_f32(v);
  const uint32x4_t odd = vandq_u32(vshrq_n_u32(u, 16), vdupq_n_u32(1));
  const uint32x4_t up = vaddq_u32(u, vaddq_u32(odd, vdupq_n_u32(0x7fff)));
  const uint32x4_t quiet = vorrq_u32(u, vdupq_n_u32(0x400000));
  return vshrn_n_u32(vbslq_u32(vceqq_f32(v, v), up, quiet), 16);
}
#endif
WEFT_INLINE void store(Bf16* p, Vec v) { vst1_u16(&p->bits, round_bf16(v)); }
WEFT_INLINE Vec round_to(float, Vec v) { return v; }
WEFT_INLINE Vec round_to(Bf16, Vec v) {
  return vreinterpretq_f32_u32(vshll_n_u16(round_bf16(v), 16));
}

WEFT_INLINE Vec load_first(const float* p, int n) {
  float lanes[kLanes] = {};
  for (int i = 0; i < n; ++i) lanes[i] = p[i];
  return vld1q_f32(lanes);
}
WEFT_INLINE Vec load_first(const Bf16* p, int n) {
  Bf16 lanes[kLanes] = {};
  for (int i = 0; i < n; ++i) lanes[i] = p[i];
  return load(lanes);
}
template <typename T>
WEFT_INLINE void store_first(T* p, Vec v, int n) {
  T lanes[kLanes];
  store(lanes, v);
  for (int i = 0; i < n; ++i) p[i] = lanes[i];
}

// Four scalars that multiply whole vectors: the left operand of a product of blocks.
using Quad = float32x4_t;
WEFT_INLINE Quad load_quad(const float* p) { return vld1q_f32(p); }
template <int kLane>
WEFT_INLINE Vec fma_quad(Quad a, Vec b, Vec c) {
  return vfmaq_laneq_f32(c, b, a, kLane);
}
inline constexpr int kTileRows = 8;  // 8 x 2 vectors of sums fill 16 of 32 registers

// Rows 0..3, columns 0..3 of `from` become columns and rows of `to`.
WEFT_INLINE void transpose4(const float* from, int64_t from_ld, float* to, int64_t to_ld) {
  const Vec r0 = load(from), r1 = load(from + from_ld);
  const Vec r2 = load(from + 2 * from_ld), r3 = load(from + 3 * from_ld);
  const float64x2_t a = vreinterpretq_f64_f32(vtrn1q_f32(r0, r1));
  const float64x2_t b = vreinterpretq_f64_f32(vtrn2q_f32(r0, r1));
  const float64x2_t c = vreinterpretq_f64_f32(vtrn1q_f32(r2, r3));
  const float64x2_t d = vreinterpretq_f64_f32(vtrn2q_f32(r2, r3));
  store(to, vreinterpretq_f32_f64(vtrn1q_f64(a, c)));
  store(to + to_ld, vreinterpretq_f32_f64(vtrn1q_f64(b, d)));
  store(to + 2 * to_ld, vreinterpretq_f32_f64(vtrn2q_f64(a, c)));
  store(to + 3 * to_ld, vreinterpretq_f32_f64(vtrn2q_f64(b, d)));
}

// Sums of squares in float64, lane by lane.
struct Squares {
  float64x2_t low, high;
};
WEFT_INLINE Squares no_squares() { return {vdupq_n_f64(0.0), vdupq_n_f64(0.0)}; }
WEFT_INLINE void add_squares(Squares& sums, Vec v) {
  const float64x2_t low = vcvt_f64_f32(vget_low_f32(v));
  const float64x2_t high = vcvt_high_f64_f32(v);
  sums.low = vfmaq_f64(sums.low, low, low);
  sums.high = vfmaq_f64(sums.high, high, high);
}
WEFT_INLINE void store(double* p, const Squares& sums) {
  vst1q_f64(p, sums.low);
  vst1q_f64(p + 2, sums.high);
}

}  // namespace weft::WEFT_LEVEL
