// kernel/cpu/level/gemm_shuffle.h: transpositions and interleavings in registers.
//
// Written with the compiler's vectors, so that the same code works for NEON and x86: a shuffle of
// four lanes is zip/trn there and unpck/shufps here.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "kernel/cpu/level/gemm_intrinsics.h"
#if !defined(__aarch64__)
#include "kernel/cpu/level/gemm_shuffle_x86.h"
#endif
#if defined(WEFT_LEVEL_amx)
#include "kernel/cpu/level/gemm_shuffle_amx.h"
#endif
#include "tensor/dtype.h"

namespace weft::WEFT_LEVEL {
namespace {

typedef uint16_t U16x4 __attribute__((vector_size(8)));
typedef uint16_t U16x8 __attribute__((vector_size(16)));
typedef uint32_t U32x4 __attribute__((vector_size(16)));
typedef uint64_t U64x2 __attribute__((vector_size(16)));

template <typename V>
[[gnu::always_inline]] inline V load_vector(const void* from) {
  V v;
  std::memcpy(&v, from, sizeof(V));
  return v;
}
template <typename V>
[[gnu::always_inline]] inline void store_vector(void* to, V v) {
  std::memcpy(to, &v, sizeof(V));
}

template <typename Packed, typename Source>
[[gnu::always_inline]] inline Packed convert(Source v) {
  if constexpr (std::is_same_v<Packed, Source>) {
    return v;
  } else {
    return to_float(v);
  }
}

// The bits of four fp32 from four bf16. (g++ 12 makes a mess of __builtin_convertvector here.)
[[gnu::always_inline]] inline U32x4 widen_four(const Bf16* from) {
#if defined(__aarch64__)
  return vshll_n_u16(vld1_u16(&from->bits), 16);
#else
  const __m128i halves = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(from));
  return std::bit_cast<U32x4>(_mm_slli_epi32(_mm_cvtepu16_epi32(halves), 16));
#endif
}

// Four units of 32 bits: fp32 elements, fp32 made of bf16, or pairs of bf16.
template <typename F>
[[gnu::always_inline]] inline U32x4 load_quad(const typename F::Source* from) {
  if constexpr (sizeof(typename F::Packed) == sizeof(typename F::Source)) {
    return load_vector<U32x4>(from);
  } else {
    return widen_four(from);
  }
}

// How many units along k one step of transpose_units takes from each line.
template <int kUnitBytes>
inline constexpr int kTransposeUnits = kUnitBytes == 4   ? 4
                                       : kUnitBytes == 8 ? 2
                                                         : 1;

// to[unit][line] = from[line][unit], for four lines and four units of 32 bits.
template <typename F>
[[gnu::always_inline]] inline void transpose_4x4(const typename F::Source* const* from, int64_t k,
                                                 typename F::Packed* to) {
  constexpr int kRow = F::kLines * F::kGroup;  // elements from one unit to the next
  const U32x4 r0 = load_quad<F>(from[0] + k), r1 = load_quad<F>(from[1] + k);
  const U32x4 r2 = load_quad<F>(from[2] + k), r3 = load_quad<F>(from[3] + k);
  const U32x4 a = __builtin_shufflevector(r0, r1, 0, 4, 1, 5);
  const U32x4 b = __builtin_shufflevector(r0, r1, 2, 6, 3, 7);
  const U32x4 c = __builtin_shufflevector(r2, r3, 0, 4, 1, 5);
  const U32x4 d = __builtin_shufflevector(r2, r3, 2, 6, 3, 7);
  store_vector(to, __builtin_shufflevector(a, c, 0, 1, 4, 5));
  store_vector(to + kRow, __builtin_shufflevector(a, c, 2, 3, 6, 7));
  store_vector(to + 2 * kRow, __builtin_shufflevector(b, d, 0, 1, 4, 5));
  store_vector(to + 3 * kRow, __builtin_shufflevector(b, d, 2, 3, 6, 7));
}

// The same for all lines of a panel and kTransposeUnits units of any size.
template <typename F>
[[gnu::always_inline]] inline void transpose_units(const typename F::Source* const* from, int64_t k,
                                                   typename F::Packed* to) {
  [[maybe_unused]] constexpr int kRow = F::kLines * F::kGroup;
  int i = 0;
  if constexpr (F::kUnitBytes == 4) {
#if defined(__AVX2__)
    const auto load = [&](int line) {
      return std::bit_cast<__m128i>(load_quad<F>(from[i + line] + k));
    };
#if defined(__AVX512F__)
    for (; i + 16 <= F::kLines; i += 16)
      transpose_16x4(load, to + i * F::kGroup, kRow * 4 / F::kGroup);
#endif
    for (; i + 8 <= F::kLines; i += 8)
      transpose_8x4(load, to + i * F::kGroup, kRow * 4 / F::kGroup);
#endif
    for (; i < F::kLines; i += 4) transpose_4x4<F>(from + i, k, to + i * F::kGroup);
  } else if constexpr (F::kUnitBytes == 8) {
    for (; i < F::kLines; i += 2) {
      const U64x2 r0 = load_vector<U64x2>(from[i] + k), r1 = load_vector<U64x2>(from[i + 1] + k);
      store_vector(to + i * F::kGroup, __builtin_shufflevector(r0, r1, 0, 2));
      store_vector(to + i * F::kGroup + kRow, __builtin_shufflevector(r0, r1, 1, 3));
    }
  } else {
    for (; i < F::kLines; ++i) std::memcpy(to + i * F::kGroup, from[i] + k, F::kUnitBytes);
  }
}

// Packing advances by this many rows: whole cache lines of a panel of four lines or more.
template <int kGroup>
inline constexpr int kInterleaveRows = kGroup == 1  ? 4
                                       : kGroup > 8 ? kGroup
                                                    : 8;

// to[line][row] = from[row][line], for four lines.
template <typename F>
[[gnu::always_inline]] inline void interleave_four(const typename F::Source* const* from,
                                                   int64_t line, typename F::Packed* to) {
  if constexpr (F::kGroup == 1) {
    store_vector(to, load_quad<F>(from[0] + line));
  } else {
    const U16x4 r0 = load_vector<U16x4>(from[0] + line), r1 = load_vector<U16x4>(from[1] + line);
    const U16x8 low = __builtin_shufflevector(r0, r1, 0, 4, 1, 5, 2, 6, 3, 7);
    if constexpr (F::kGroup == 2) {
      store_vector(to, low);
    } else {
      const U16x4 r2 = load_vector<U16x4>(from[2] + line), r3 = load_vector<U16x4>(from[3] + line);
      const U16x8 high = __builtin_shufflevector(r2, r3, 0, 4, 1, 5, 2, 6, 3, 7);
      const U32x4 a = std::bit_cast<U32x4>(low), b = std::bit_cast<U32x4>(high);
      store_vector(to, __builtin_shufflevector(a, b, 0, 4, 1, 5));
      store_vector(to + 8, __builtin_shufflevector(a, b, 2, 6, 3, 7));
    }
  }
}

// The same for eight lines of bf16: half the loads.
template <typename F>
[[gnu::always_inline]] inline void interleave_eight(const typename F::Source* const* from,
                                                    int64_t line, typename F::Packed* to) {
  const U16x8 r0 = load_vector<U16x8>(from[0] + line), r1 = load_vector<U16x8>(from[1] + line);
  const U16x8 a = __builtin_shufflevector(r0, r1, 0, 8, 1, 9, 2, 10, 3, 11);
  const U16x8 b = __builtin_shufflevector(r0, r1, 4, 12, 5, 13, 6, 14, 7, 15);
  if constexpr (F::kGroup == 2) {
    store_vector(to, a);
    store_vector(to + 8, b);
  } else {
    const U16x8 r2 = load_vector<U16x8>(from[2] + line), r3 = load_vector<U16x8>(from[3] + line);
    const U32x4 a0 = std::bit_cast<U32x4>(a), b0 = std::bit_cast<U32x4>(b);
    const U32x4 a1 =
        std::bit_cast<U32x4>(__builtin_shufflevector(r2, r3, 0, 8, 1, 9, 2, 10, 3, 11));
    const U32x4 b1 =
        std::bit_cast<U32x4>(__builtin_shufflevector(r2, r3, 4, 12, 5, 13, 6, 14, 7, 15));
    store_vector(to, __builtin_shufflevector(a0, a1, 0, 4, 1, 5));
    store_vector(to + 8, __builtin_shufflevector(a0, a1, 2, 6, 3, 7));
    store_vector(to + 16, __builtin_shufflevector(b0, b1, 0, 4, 1, 5));
    store_vector(to + 24, __builtin_shufflevector(b0, b1, 2, 6, 3, 7));
  }
}

// One group of rows into a whole panel.
template <typename F>
[[gnu::always_inline]] inline void interleave_rows(const typename F::Source* const* from,
                                                   int64_t line, typename F::Packed* to) {
  int i = 0;
#if defined(WEFT_LEVEL_amx)
  if constexpr (F::kGroup == 32) {
    interleave_32x32(from, line, to);
    return;
  }
#endif
  if constexpr (F::kGroup > 1) {
    for (; i + 8 <= F::kLines; i += 8) interleave_eight<F>(from, line + i, to + i * F::kGroup);
  }
  for (; i < F::kLines; i += 4) interleave_four<F>(from, line + i, to + i * F::kGroup);
}

// The same where the panel has only `lines` lines; the others become zero.
template <typename F>
void interleave_rest(const typename F::Source* const* from, int64_t line, int64_t lines,
                     typename F::Packed* to) {
  int64_t i = 0;
  if constexpr (F::kGroup <= 4) {
    for (; i + 4 <= lines; i += 4) interleave_four<F>(from, line + i, to + i * F::kGroup);
  }
  for (; i < F::kLines; ++i) {
    for (int row = 0; row < F::kGroup; ++row) {
      to[i * F::kGroup + row] =
          i < lines ? convert<typename F::Packed>(from[row][line + i]) : typename F::Packed{};
    }
  }
}

}  // namespace
}  // namespace weft::WEFT_LEVEL
