// kernel/cpu/level/gemm_shuffle_x86.h: transpositions of 32-bit units in wide vectors.
//
// A wide vector takes four units of one line into each of its quarters (or halves), lines four
// apart; transposed within the quarters it then holds one unit of all its lines, in order.
#pragma once

#include <cstdint>

#include "kernel/cpu/level/gemm_intrinsics.h"

namespace weft::WEFT_LEVEL {
namespace {

// load(line) gives four units of a line; the units of eight lines go to rows `stride` bytes apart.
template <typename Load>
[[gnu::always_inline]] inline void transpose_8x4(const Load& load, void* to, int64_t stride) {
  const auto both = [&](int line) {
    return _mm256_inserti128_si256(_mm256_castsi128_si256(load(line)), load(line + 4), 1);
  };
  const __m256i r0 = both(0), r1 = both(1), r2 = both(2), r3 = both(3);
  const __m256i a = _mm256_unpacklo_epi32(r0, r1), b = _mm256_unpackhi_epi32(r0, r1);
  const __m256i c = _mm256_unpacklo_epi32(r2, r3), d = _mm256_unpackhi_epi32(r2, r3);
  const auto store = [&](int row, __m256i v) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(static_cast<char*>(to) + row * stride), v);
  };
  store(0, _mm256_unpacklo_epi64(a, c));
  store(1, _mm256_unpackhi_epi64(a, c));
  store(2, _mm256_unpacklo_epi64(b, d));
  store(3, _mm256_unpackhi_epi64(b, d));
}

#if defined(__AVX512F__)
template <typename Load>
[[gnu::always_inline]] inline void transpose_16x4(const Load& load, void* to, int64_t stride) {
  const auto all = [&](int line) {
    __m512i v = _mm512_castsi128_si512(load(line));
    v = _mm512_inserti32x4(v, load(line + 4), 1);
    v = _mm512_inserti32x4(v, load(line + 8), 2);
    return _mm512_inserti32x4(v, load(line + 12), 3);
  };
  const __m512i r0 = all(0), r1 = all(1), r2 = all(2), r3 = all(3);
  const __m512i a = _mm512_unpacklo_epi32(r0, r1), b = _mm512_unpackhi_epi32(r0, r1);
  const __m512i c = _mm512_unpacklo_epi32(r2, r3), d = _mm512_unpackhi_epi32(r2, r3);
  const auto store = [&](int row, __m512i v) {
    _mm512_storeu_si512(static_cast<char*>(to) + row * stride, v);
  };
  store(0, _mm512_unpacklo_epi64(a, c));
  store(1, _mm512_unpackhi_epi64(a, c));
  store(2, _mm512_unpacklo_epi64(b, d));
  store(3, _mm512_unpackhi_epi64(b, d));
}
#endif

}  // namespace
}  // namespace weft::WEFT_LEVEL
