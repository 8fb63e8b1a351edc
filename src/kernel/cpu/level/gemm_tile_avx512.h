// kernel/cpu/level/gemm_tile_avx512.h: the tiles of AVX-512, 12 rows by 32 columns: fp32, and bf16
// where VDPBF16PS is available.
//
// 24 accumulators, 2 vectors of B, broadcasts of A: 24 multiply-adds to 14 loads. For bf16 a lane
// holds two neighbouring k, and one instruction adds both products; the shape is the same.
#pragma once

#include <cstdint>
#include <cstring>

#include "kernel/cpu/level/gemm_intrinsics.h"
#include "tensor/dtype.h"

namespace weft::WEFT_LEVEL {
namespace {

struct FloatStep {
  using Packed = float;
  static constexpr int kGroup = 1;
  static constexpr int64_t kMaxK = 512;  // more than the L1 cache, and still faster: docs/log.md
  [[gnu::always_inline]] static __m512 multiply_add(__m512 c, __m512i a, __m512i b) {
    return _mm512_fmadd_ps(_mm512_castsi512_ps(a), _mm512_castsi512_ps(b), c);
  }
};

#if defined(__AVX512BF16__)
struct Bf16Step {
  using Packed = Bf16;
  static constexpr int kGroup = 2;
  static constexpr int64_t kMaxK = 512;
  [[gnu::always_inline]] static __m512 multiply_add(__m512 c, __m512i a, __m512i b) {
    __m512bh x, y;
    std::memcpy(&x, &a, sizeof x);
    std::memcpy(&y, &b, sizeof y);
    return _mm512_dpbf16_ps(c, x, y);
  }
};
#endif

template <typename Step>
struct WideTile {
  using Packed = typename Step::Packed;
  static constexpr int kMr = 12, kNr = 32;
  static constexpr int kGroupA = Step::kGroup, kGroupB = Step::kGroup, kStep = Step::kGroup;
  static constexpr int64_t kMaxK = Step::kMaxK;

  static void prepare() {}

  static void multiply(int64_t k_count, const Packed* a, const Packed* b, float* tile,
                       bool resume) {
    __m512 c[kMr][2];
#pragma GCC unroll 12
    for (int i = 0; i < kMr; ++i) {
#pragma GCC unroll 2
      for (int j = 0; j < 2; ++j) {
        c[i][j] = resume ? _mm512_load_ps(tile + i * kNr + j * 16) : _mm512_setzero_ps();
      }
    }
    const int64_t steps = k_count / kStep;
    for (int64_t k = 0; k < steps; ++k, a += kMr * kStep, b += kNr * kStep) {
      const __m512i b0 = _mm512_load_si512(b), b1 = _mm512_load_si512(b + 16 * kStep);
#pragma GCC unroll 12
      for (int i = 0; i < kMr; ++i) {
        int32_t unit;
        std::memcpy(&unit, a + i * kStep, sizeof unit);
        const __m512i row = _mm512_set1_epi32(unit);
        c[i][0] = Step::multiply_add(c[i][0], row, b0);
        c[i][1] = Step::multiply_add(c[i][1], row, b1);
      }
    }
#pragma GCC unroll 12
    for (int i = 0; i < kMr; ++i) {
#pragma GCC unroll 2
      for (int j = 0; j < 2; ++j) _mm512_store_ps(tile + i * kNr + j * 16, c[i][j]);
    }
  }
};

using FloatTile = WideTile<FloatStep>;

}  // namespace
}  // namespace weft::WEFT_LEVEL
