// kernel/cpu/level/gemm_shuffle_amx.h: 32 rows of k into lines of 32 k, for AMX's left factor.
#pragma once

#include <cstdint>

#include "kernel/cpu/level/gemm_intrinsics.h"
#include "tensor/dtype.h"

namespace weft::WEFT_LEVEL {
namespace {

// Sixteen vectors of sixteen 32-bit units: rows become columns. First 4 by 4 within the quarters
// of the vectors, then the quarters themselves.
[[gnu::always_inline]] inline void transpose_16x16(__m512i* v) {
#pragma GCC unroll 4
  for (int i = 0; i < 16; i += 4) {
    const __m512i a = _mm512_unpacklo_epi32(v[i], v[i + 1]);
    const __m512i b = _mm512_unpackhi_epi32(v[i], v[i + 1]);
    const __m512i c = _mm512_unpacklo_epi32(v[i + 2], v[i + 3]);
    const __m512i d = _mm512_unpackhi_epi32(v[i + 2], v[i + 3]);
    v[i] = _mm512_unpacklo_epi64(a, c);      // columns 0, 4, 8, 12 of rows i to i + 3
    v[i + 1] = _mm512_unpackhi_epi64(a, c);  // 1, 5, 9, 13
    v[i + 2] = _mm512_unpacklo_epi64(b, d);
    v[i + 3] = _mm512_unpackhi_epi64(b, d);
  }
  __m512i out[16];
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    const __m512i a = _mm512_shuffle_i32x4(v[i], v[i + 4], 0x44);
    const __m512i b = _mm512_shuffle_i32x4(v[i], v[i + 4], 0xee);
    const __m512i c = _mm512_shuffle_i32x4(v[i + 8], v[i + 12], 0x44);
    const __m512i d = _mm512_shuffle_i32x4(v[i + 8], v[i + 12], 0xee);
    out[i] = _mm512_shuffle_i32x4(a, c, 0x88);
    out[i + 4] = _mm512_shuffle_i32x4(a, c, 0xdd);
    out[i + 8] = _mm512_shuffle_i32x4(b, d, 0x88);
    out[i + 12] = _mm512_shuffle_i32x4(b, d, 0xdd);
  }
#pragma GCC unroll 16
  for (int i = 0; i < 16; ++i) v[i] = out[i];
}

// to[line][row] = from[row][line], for 32 rows and 32 lines.
inline void interleave_32x32(const Bf16* const* from, int64_t line, Bf16* to) {
  for (int half = 0; half < 32; half += 16, to += 16 * 32) {
    __m512i v[16];
#pragma GCC unroll 16
    for (int pair = 0; pair < 16; ++pair) {
      const auto load = [&](int row) {
        return _mm512_cvtepu16_epi32(
            _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from[row] + line + half)));
      };
      v[pair] = _mm512_or_si512(load(2 * pair), _mm512_slli_epi32(load(2 * pair + 1), 16));
    }
    transpose_16x16(v);
#pragma GCC unroll 16
    for (int i = 0; i < 16; ++i) _mm512_store_si512(to + i * 32, v[i]);
  }
}

}  // namespace
}  // namespace weft::WEFT_LEVEL
