// kernel/cpu/level/simd_four.h: four vectors that take every instruction together.
//
// A chain of dependent instructions (exp is about twenty) leaves most of a processor idle, and one
// that runs out of order does not look far enough ahead to find the next chain. Vecs makes the four
// chains neighbours: instruction by instruction, not element by element. What is written for Vec in
// terms of the functions below works for Vecs too and gives the same bits.
#pragma once

#include "kernel/cpu/level/simd.h"

namespace weft::WEFT_LEVEL {

inline constexpr int kChains = 4;

struct Four {};  // like Full, for kChains whole vectors

struct Vecs {
  Vec v[kChains];
  Vecs() = default;
  WEFT_INLINE Vecs(Vec a) : v{a, a, a, a} {}  // NOLINT: constants are meant to become Vecs
  WEFT_INLINE Vecs(Vec a, Vec b, Vec c, Vec d) : v{a, b, c, d} {}
};
struct Ivecs {
  Ivec v[kChains];
};
struct Masks {
  Mask v[kChains];
};

// {f(0), f(1), f(2), f(3)}
template <typename Result, typename F>
WEFT_INLINE Result in_four(const F& f) {
  return {f(0), f(1), f(2), f(3)};
}

WEFT_INLINE Vecs operator+(const Vecs& a, const Vecs& b) {
  return in_four<Vecs>([&](int i) { return a.v[i] + b.v[i]; });
}
WEFT_INLINE Vecs operator-(const Vecs& a, const Vecs& b) {
  return in_four<Vecs>([&](int i) { return a.v[i] - b.v[i]; });
}
WEFT_INLINE Vecs operator*(const Vecs& a, const Vecs& b) {
  return in_four<Vecs>([&](int i) { return a.v[i] * b.v[i]; });
}
WEFT_INLINE Vecs operator/(const Vecs& a, const Vecs& b) {
  return in_four<Vecs>([&](int i) { return a.v[i] / b.v[i]; });
}
WEFT_INLINE Vecs fma(const Vecs& a, const Vecs& b, const Vecs& c) {
  return in_four<Vecs>([&](int i) { return fma(a.v[i], b.v[i], c.v[i]); });
}
WEFT_INLINE Vecs fnma(const Vecs& a, const Vecs& b, const Vecs& c) {
  return in_four<Vecs>([&](int i) { return fnma(a.v[i], b.v[i], c.v[i]); });
}
WEFT_INLINE Vecs maximum(const Vecs& a, const Vecs& b) {
  return in_four<Vecs>([&](int i) { return maximum(a.v[i], b.v[i]); });
}
WEFT_INLINE Vecs minimum(const Vecs& a, const Vecs& b) {
  return in_four<Vecs>([&](int i) { return minimum(a.v[i], b.v[i]); });
}
WEFT_INLINE Vecs square_root(const Vecs& a) {
  return in_four<Vecs>([&](int i) { return square_root(a.v[i]); });
}
WEFT_INLINE Masks less(const Vecs& a, const Vecs& b) {
  return in_four<Masks>([&](int i) { return less(a.v[i], b.v[i]); });
}
WEFT_INLINE Vecs select(const Masks& mask, const Vecs& yes, const Vecs& no) {
  return in_four<Vecs>([&](int i) { return select(mask.v[i], yes.v[i], no.v[i]); });
}
WEFT_INLINE Vecs zero_where(const Masks& mask, const Vecs& a) {
  return in_four<Vecs>([&](int i) { return zero_where(mask.v[i], a.v[i]); });
}
WEFT_INLINE Ivecs bits_of(const Vecs& a) {
  return in_four<Ivecs>([&](int i) { return bits_of(a.v[i]); });
}
WEFT_INLINE Vecs from_bits(const Ivecs& a) {
  return in_four<Vecs>([&](int i) { return from_bits(a.v[i]); });
}
WEFT_INLINE Ivecs plus(const Ivecs& a, const Ivecs& b) {
  return in_four<Ivecs>([&](int i) { return plus(a.v[i], b.v[i]); });
}
template <int kBits>
WEFT_INLINE Ivecs shift_left(const Ivecs& a) {
  return in_four<Ivecs>([&](int i) { return shift_left<kBits>(a.v[i]); });
}
template <typename T>
WEFT_INLINE Vecs round_to(T, const Vecs& a) {
  return in_four<Vecs>([&](int i) { return round_to(T{}, a.v[i]); });
}
WEFT_INLINE Vecs fill_rest(const Vecs& a, float, Four) { return a; }

template <typename T>
WEFT_INLINE Vecs load(const T* p, Four) {
  return in_four<Vecs>([&](int i) { return load(p + i * kLanes); });
}
template <typename T>
WEFT_INLINE void store(T* p, const Vecs& a, Four) {
  for (int i = 0; i < kChains; ++i) store(p + i * kLanes, a.v[i]);
}
#if defined(__aarch64__)
// Eight bf16 fill a register: half the loads and stores.
WEFT_INLINE Vecs load(const Bf16* p, Four) {
  const uint16x8_t a = vld1q_u16(&p[0].bits), b = vld1q_u16(&p[8].bits);
  return {vreinterpretq_f32_u32(vshll_n_u16(vget_low_u16(a), 16)),
          vreinterpretq_f32_u32(vshll_high_n_u16(a, 16)),
          vreinterpretq_f32_u32(vshll_n_u16(vget_low_u16(b), 16)),
          vreinterpretq_f32_u32(vshll_high_n_u16(b, 16))};
}
WEFT_INLINE void store(Bf16* p, const Vecs& a, Four) {
  vst1q_u16(&p[0].bits, vcombine_u16(round_bf16(a.v[0]), round_bf16(a.v[1])));
  vst1q_u16(&p[8].bits, vcombine_u16(round_bf16(a.v[2]), round_bf16(a.v[3])));
}
#endif

// The sum, one of four, to which body(i, chain, part) below adds.
WEFT_INLINE Vecs& chain_of(Vecs& sums, int, Four) { return sums; }
template <typename Part>
WEFT_INLINE Vec& chain_of(Vecs& sums, int chain, Part) {
  return sums.v[chain];
}
WEFT_INLINE float sum_all(const Vecs& a) {
  return sum_lanes((a.v[0] + a.v[1]) + (a.v[2] + a.v[3]));
}
WEFT_INLINE float max_all(const Vecs& a) {
  return max_lanes(maximum(maximum(a.v[0], a.v[1]), maximum(a.v[2], a.v[3])));
}

// body(i, chain, part) for [0, n): four vectors at a time (chain 0), then the rest of the whole
// ones (chains 0 to 2), then the tail (chain 3). The enclosing function must be flattened, or the
// chains would live in memory.
template <typename Body>
WEFT_INLINE void each_four(int64_t n, const Body& body) {
  int64_t i = 0;
  for (; i + kChains * kLanes <= n; i += kChains * kLanes) body(i, 0, Four{});
  const int64_t whole = (n - i) / kLanes;
  if (whole > 0) body(i, 0, Full{});
  if (whole > 1) body(i + kLanes, 1, Full{});
  if (whole > 2) body(i + 2 * kLanes, 2, Full{});
  i += whole * kLanes;
  if (i < n) body(i, 3, Part{static_cast<int>(n - i)});
}

}  // namespace weft::WEFT_LEVEL
