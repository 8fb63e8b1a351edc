// kernel/cpu/level/rms_row.h: one row of a root-mean-square norm, for rmsnorm and qk_norm.
//
// kOffset: the weight is 1 + weight, and nothing is rounded before the end (Gemma); otherwise the
// normalized row is rounded before the weight multiplies it (Llama).
#pragma once

#include <type_traits>

#include "kernel/cpu/level/simd_four.h"

namespace weft::WEFT_LEVEL {

WEFT_INLINE float rstd_of(float squares, int64_t n, float eps) {
  const float mean = squares / static_cast<float>(n) + eps;
  return 1.0f / __builtin_sqrtf(mean);
}

template <bool kOffset, typename V>
WEFT_INLINE V offset_weight(V weight) {
  if constexpr (kOffset) return weight + splat(1.0f);
  return weight;
}
// What the weight multiplies.
template <typename T, bool kOffset, typename V>
WEFT_INLINE V weighted_part(V normed) {
  if constexpr (kOffset) return normed;
  return round_to(T{}, normed);
}

// y may be s.
template <typename T, bool kOffset>
WEFT_INLINE void apply_norm(const T* s, const T* weight, float row_rstd, T* y, int64_t n) {
  const Vec rstd = splat(row_rstd);
  each_four(n, [&](int64_t i, int, auto part) {
    const auto normed = weighted_part<T, kOffset>(load(s + i, part) * rstd);
    store(y + i, normed * offset_weight<kOffset>(load(weight + i, part)), part);
  });
}

// With n = s rstd and g = dy weight: dx = rstd (g - n mean(g n)) + dsum; dweight += dy n, this n as
// the weight multiplied it. dsum and dweight may be null; dx may be any of the inputs.
template <typename T, bool kOffset>
WEFT_INLINE void norm_backward(const T* dy, const T* s, const T* dsum, const T* weight,
                               float row_rstd, T* dx, float* dweight, int64_t n) {
  const Vec rstd = splat(row_rstd);
  Vecs sums = zero();
  each_four(n, [&](int64_t i, int chain, auto part) {
    const auto d = load(dy + i, part);
    const auto normed = load(s + i, part) * rstd;
    auto& sum = chain_of(sums, chain, part);
    sum = fma(d * offset_weight<kOffset>(load(weight + i, part)), normed, sum);
    if (!dweight) return;
    store(dweight + i, fma(d, weighted_part<T, kOffset>(normed), load(dweight + i, part)), part);
  });
  const Vec mean = splat(sum_all(sums) / static_cast<float>(n));
  each_four(n, [&](int64_t i, int, auto part) {
    const auto g = load(dy + i, part) * offset_weight<kOffset>(load(weight + i, part));
    const auto normed = load(s + i, part) * rstd;
    auto d = fnma(normed, mean, g) * rstd;
    if (dsum) d = d + load(dsum + i, part);
    store(dx + i, d, part);
  });
}

// fn(std::bool_constant) of whether the weight has an offset.
template <typename Fn>
WEFT_INLINE void with_offset(int weight_offset, const Fn& fn) {
  if (weight_offset != 0) {
    fn(std::true_type{});
  } else {
    fn(std::false_type{});
  }
}

}  // namespace weft::WEFT_LEVEL
