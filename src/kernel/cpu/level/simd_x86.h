// kernel/cpu/level/simd_x86.h: what both x86 widths share. Included by simd.h.
#pragma once

#include "kernel/cpu/level/x86_intrinsics.h"

namespace weft::WEFT_LEVEL {

// Rows 0..3, columns 0..3 of `from` become columns and rows of `to`.
WEFT_INLINE void transpose4(const float* from, int64_t from_ld, float* to, int64_t to_ld) {
  const __m128 r0 = _mm_loadu_ps(from), r1 = _mm_loadu_ps(from + from_ld);
  const __m128 r2 = _mm_loadu_ps(from + 2 * from_ld), r3 = _mm_loadu_ps(from + 3 * from_ld);
  const __m128 a = _mm_unpacklo_ps(r0, r1), b = _mm_unpackhi_ps(r0, r1);
  const __m128 c = _mm_unpacklo_ps(r2, r3), d = _mm_unpackhi_ps(r2, r3);
  _mm_storeu_ps(to, _mm_movelh_ps(a, c));
  _mm_storeu_ps(to + to_ld, _mm_movehl_ps(c, a));
  _mm_storeu_ps(to + 2 * to_ld, _mm_movelh_ps(b, d));
  _mm_storeu_ps(to + 3 * to_ld, _mm_movehl_ps(d, b));
}

}  // namespace weft::WEFT_LEVEL
