// kernel/cpu/level/simd_math.h: our own exp, log and erf of a vector, so that we control their
// bits.
//
// V is Vec, or Vecs for four at a time.
//
// The coefficients interpolate at Chebyshev nodes; the errors measured over all exponents are in
// tests/kernel/math_test.cpp.
#pragma once

#include "kernel/cpu/level/simd_four.h"

namespace weft::WEFT_LEVEL {

// ln 2 in two pieces: n * kLn2High is exact for every exponent n.
inline constexpr float kLog2E = 0x1.715476p+0f;
inline constexpr float kLn2 = 0x1.62e43p-1f;
inline constexpr float kLn2High = 0x1.62e4p-1f;
inline constexpr float kLn2Low = 0x1.7f7d1cp-20f;

// x = n ln 2 + r, |r| <= ln 2 / 2: e^r = 1 + r + r^2 p(r), and n is added to its exponent. Adding
// 1.5 * 2^23 leaves n in the low bits of the sum, which costs less than a conversion. Results
// below 2^-126 are zero. x is at most 88; exp() takes any x.
template <typename V>
WEFT_INLINE V exp_of_small(V x) {
  const Vec shifter = splat(0x1.8p23f);
  const V shifted = fma(x, splat(kLog2E), shifter);
  const V whole = shifted - shifter;
  const V r = fnma(whole, splat(kLn2Low), fnma(whole, splat(kLn2High), x));
  // In pairs (Estrin): a shorter chain, and fewer copies of constants than Horner's.
  const V square = r * r;
  V p = fma(splat(0x1.a1256cp-13f), r, splat(0x1.6d43b0p-10f));
  p = fma(p, square, fma(splat(0x1.1110e0p-7f), r, splat(0x1.5554e8p-5f)));
  p = fma(p, square, fma(splat(0x1.555556p-3f), r, splat(0.5f)));
  const V y = fma(square, p, r) + splat(1.0f);
  const V scaled = from_bits(plus(bits_of(y), shift_left<23>(bits_of(shifted))));
  return zero_where(less(x, splat(-0x1.5d589ep+6f)), scaled);  // ln 2^-126
}

template <typename V>
WEFT_INLINE V exp(V x) {
  return select(less(splat(0x1.62e42ep+6f), x), splat(__builtin_inff()), exp_of_small(x));
}

// 2^x for x up to 128, which gives infinity, for softmax: two thirds of the work of exp. x = n + f,
// |f| <= 1/2, is exact. At -127 and below the result is zero, just above it something below 2^-126.
// The price is paid before: scores times log2(e) are rounded, so a weight of e^-20 is good to 1e-6
// of itself only.
template <typename V>
WEFT_INLINE V exp2_of_small(V x) {
  const Vec shifter = splat(0x1.8p23f);
  x = maximum(splat(-127.0f), x);
  const V shifted = x + shifter;
  const V f = x - (shifted - shifter);
  const V square = f * f;
  V p = fma(splat(0x1.5f0956p-10f), f, splat(0x1.3b2a52p-7f));
  p = fma(splat(0x1.441412p-13f), square, p);
  p = fma(p, square, fma(splat(0x1.c6af6cp-5f), f, splat(0x1.ebfbe0p-3f)));
  p = fma(p, square, fma(splat(0x1.62e430p-1f), f, splat(1.0f)));
  return from_bits(plus(bits_of(p), shift_left<23>(bits_of(shifted))));
}

// x = 2^n (1 + f), f in [sqrt(1/2) - 1, sqrt(2) - 1): log(1 + f) = f - f^2 / 2 + f^3 p(f).
// For x >= 2^-126, infinity and NaN included; zero gives -infinity.
WEFT_INLINE Vec log(Vec x) {
  const Ivec shifted = minus(bits_of(x), splat_int(0x3f3504f3));  // sqrt(1/2)
  const Ivec n = shift_right<23>(shifted);
  const Ivec fraction = bit_and(shifted, splat_int(0x7fffff));
  const Vec f = from_bits(plus(fraction, splat_int(0x3f3504f3))) - splat(1.0f);
  Vec p = splat(0x1.1d8ea6p-4f);
  p = fma(p, f, splat(-0x1.d635bcp-4f));
  p = fma(p, f, splat(0x1.dea282p-4f));
  p = fma(p, f, splat(-0x1.fcf4c6p-4f));
  p = fma(p, f, splat(0x1.23d21ap-3f));
  p = fma(p, f, splat(-0x1.555b4ap-3f));
  p = fma(p, f, splat(0x1.999d5ap-3f));
  p = fma(p, f, splat(-0x1.fffffcp-3f));
  p = fma(p, f, splat(0x1.555554p-2f));
  const Vec whole = as_floats(n);
  const Vec square = f * f;
  Vec y = fma(square * f, p, whole * splat(kLn2Low));
  y = fnma(square, splat(0.5f), y);
  y = fma(whole, splat(kLn2High), f + y);
  const Vec infinity = splat(__builtin_inff());
  y = select(less(x, infinity), y, x);  // infinity and NaN are their own logarithms
  y = select(equal(x, zero()), zero() - infinity, y);
  return select(less(x, zero()), splat(__builtin_nanf("")), y);
}

// 1 / (1 + e^-x). For bf16 results 2^x is exact enough; at 128 it is infinity.
template <typename T, typename V>
WEFT_INLINE V sigmoid(V x) {
  if constexpr (sizeof(T) == sizeof(Bf16)) {
    return splat(1.0f) / (splat(1.0f) + exp2_of_small(minimum(splat(128.0f), x * splat(-kLog2E))));
  } else {
    return splat(1.0f) / (splat(1.0f) + exp(zero() - x));
  }
}

// Up to 15/16 erf(x) = x + x p(x^2), above it 1 - e^q(|x|) with q = ln(1 - erf); from 4 on it is 1.
// p and q are the polynomials of least error, p relative to erf(x), q times 1 - erf(x). NaN stays.
template <typename V>
WEFT_INLINE V erf(V x) {
  const V size = maximum(zero() - x, x);
  const V square = x * x;
  V p = fma(splat(0x1.5ac332p-14f), square, splat(-0x1.a99ef6p-11f));
  p = fma(p, square, splat(0x1.54b5e4p-8f));
  p = fma(p, square, splat(-0x1.b80cb4p-6f));
  p = fma(p, square, splat(0x1.ce2df4p-4f));
  p = fma(p, square, splat(-0x1.812742p-2f));
  p = fma(p, square, splat(0x1.06eba8p-3f));
  const V near = fma(x, p, x);
  const V t = minimum(splat(4.0f), size);
  V q = fma(splat(-0x1.8ef9b8p-17f), t, splat(0x1.596c4ep-12f));
  q = fma(q, t, splat(-0x1.e0f676p-9f));
  q = fma(q, t, splat(0x1.8641a8p-6f));
  q = fma(q, t, splat(-0x1.b36b78p-4f));
  q = fma(q, t, splat(-0x1.452d3ep-1f));
  q = fma(q, t, splat(-0x1.077e1ep-3f));
  const V far = splat(1.0f) - exp_of_small(fma(q, t, zero() - t));
  const V signed_far = select(less(x, zero()), zero() - far, far);
  return select(less(splat(0.9375f), size), signed_far, near);
}

WEFT_INLINE float log(float x) { return first_lane(log(splat(x))); }
WEFT_INLINE float exp(float x) { return first_lane(exp(splat(x))); }

}  // namespace weft::WEFT_LEVEL
