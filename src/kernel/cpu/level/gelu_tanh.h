// kernel/cpu/level/gelu_tanh.h: GELU's tanh form, for gelu and geglu.
#pragma once

#include "kernel/cpu/level/simd_math.h"

namespace weft::WEFT_LEVEL {

inline constexpr float kGeluRoot = 0x1.988454p-1f;  // sqrt(2 / pi)
inline constexpr float kGeluCubic = 0.044715f;

template <typename V>
struct Gelu {
  V below, slope;  // the distribution function, or its approximation; the derivative of x below
};

// (1 + tanh(u)) / 2 is sigmoid(2 u), whose smaller half, sigmoid(-|2 u|), is computed: both tails
// keep their digits, which the slope multiplies by up to 40. At 16 it is 0: larger values must not
// become infinity times zero.
template <typename V>
WEFT_INLINE V clamp(V x) {
  return maximum(splat(-16.0f), minimum(splat(16.0f), x));
}
template <typename T, typename V>
WEFT_INLINE V tail_of(V twice_u) {
  return sigmoid<T>(minimum(twice_u, zero() - twice_u));
}
template <typename V>
WEFT_INLINE V twice_inner(V x) {
  return x * fma(x * x, splat(2.0f * kGeluRoot * kGeluCubic), splat(2.0f * kGeluRoot));
}
template <typename V>
WEFT_INLINE V from_tail(V twice_u, V tail) {
  return select(less(twice_u, zero()), tail, splat(1.0f) - tail);
}
template <typename T, typename V>
WEFT_INLINE V with_tanh(V x) {
  const V v = twice_inner(clamp(x));
  return from_tail(v, tail_of<T>(v));
}
// With s the sigmoid of 2 u: s + x s (1 - s) 2 u'.
template <typename T, typename V>
WEFT_INLINE Gelu<V> tanh_with_slope(V x) {
  const V c = clamp(x);
  const V v = twice_inner(c), tail = tail_of<T>(v);
  const V s = from_tail(v, tail);
  const V inner_slope = fma(c * c, splat(6.0f * kGeluRoot * kGeluCubic), splat(2.0f * kGeluRoot));
  return {s, fma(c * tail * (splat(1.0f) - tail), inner_slope, s)};
}

}  // namespace weft::WEFT_LEVEL
