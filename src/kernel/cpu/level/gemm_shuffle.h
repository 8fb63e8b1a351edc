// kernel/cpu/level/gemm_shuffle.h: transpositions and interleavings in registers.
//
// Written with the compiler's vectors, so that one text serves NEON and x86: a shuffle of four
// lanes is zip/trn there and unpck/shufps here.
#pragma once

#include <cstdint>
#include <cstring>
#include <type_traits>

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

// Four units of 32 bits: fp32 elements, fp32 made of bf16, or pairs of bf16.
template <typename F>
[[gnu::always_inline]] inline U32x4 load_quad(const typename F::Source* from) {
  if constexpr (sizeof(typename F::Packed) == sizeof(typename F::Source)) {
    return load_vector<U32x4>(from);
  } else {
    return __builtin_convertvector(load_vector<U16x4>(from), U32x4) << 16;
  }
}

// How many units along k one step of transpose_units takes from each line.
template <int kUnitBytes>
inline constexpr int kTransposeUnits = kUnitBytes == 4 ? 4 : kUnitBytes == 8 ? 2 : 1;

// to[unit][line] = from[line][unit], for all lines of a panel, from column k on.
template <typename F>
[[gnu::always_inline]] inline void transpose_units(const typename F::Source* const* from, int64_t k,
                                                   typename F::Packed* to) {
  constexpr int kRow = F::kLines * F::kGroup;  // elements from one unit to the next
  if constexpr (F::kUnitBytes == 4) {
    for (int i = 0; i < F::kLines; i += 4) {
      const U32x4 r0 = load_quad<F>(from[i] + k), r1 = load_quad<F>(from[i + 1] + k);
      const U32x4 r2 = load_quad<F>(from[i + 2] + k), r3 = load_quad<F>(from[i + 3] + k);
      const U32x4 a = __builtin_shufflevector(r0, r1, 0, 4, 1, 5);
      const U32x4 b = __builtin_shufflevector(r0, r1, 2, 6, 3, 7);
      const U32x4 c = __builtin_shufflevector(r2, r3, 0, 4, 1, 5);
      const U32x4 d = __builtin_shufflevector(r2, r3, 2, 6, 3, 7);
      typename F::Packed* out = to + i * F::kGroup;
      store_vector(out, __builtin_shufflevector(a, c, 0, 1, 4, 5));
      store_vector(out + kRow, __builtin_shufflevector(a, c, 2, 3, 6, 7));
      store_vector(out + 2 * kRow, __builtin_shufflevector(b, d, 0, 1, 4, 5));
      store_vector(out + 3 * kRow, __builtin_shufflevector(b, d, 2, 3, 6, 7));
    }
  } else if constexpr (F::kUnitBytes == 8) {
    for (int i = 0; i < F::kLines; i += 2) {
      const U64x2 r0 = load_vector<U64x2>(from[i] + k), r1 = load_vector<U64x2>(from[i + 1] + k);
      store_vector(to + i * F::kGroup, __builtin_shufflevector(r0, r1, 0, 2));
      store_vector(to + i * F::kGroup + kRow, __builtin_shufflevector(r0, r1, 1, 3));
    }
  } else {
    for (int i = 0; i < F::kLines; ++i) std::memcpy(to + i * F::kGroup, from[i] + k, F::kUnitBytes);
  }
}

// interleave_rows takes so many rows of so many lines at once.
template <int kGroup>
inline constexpr int kInterleaveRows = kGroup;
template <int kGroup>
inline constexpr int kInterleaveLines = 4;

// to[line][row] = from[row][line], for four lines from `line` on.
template <typename F>
[[gnu::always_inline]] inline void interleave_rows(const typename F::Source* const* from,
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

// The same where only lines below `end` exist.
template <typename F>
void interleave_rest(const typename F::Source* const* from, int64_t line, int64_t end,
                     typename F::Packed* to) {
  for (int64_t i = 0; i < kInterleaveLines<F::kGroup>; ++i) {
    for (int row = 0; row < F::kGroup; ++row) {
      to[i * F::kGroup + row] = line + i < end
                                    ? convert<typename F::Packed>(from[row][line + i])
                                    : typename F::Packed{};
    }
  }
}

}  // namespace
}  // namespace weft::WEFT_LEVEL
