// kernel/cpu/level/simd.h: a thin vector of floats, as wide as this instruction level has.
//
// Vec is the machine's native type: + - * / work on it directly. A tail runs the same code as a
// whole vector, with Part instead of Full, so an element's bits do not depend on its position.
#pragma once

#include "tensor/dtype.h"

#define WEFT_INLINE [[gnu::always_inline]] inline

#if defined(__aarch64__)
#include "kernel/cpu/level/simd_neon.h"
#elif defined(__AVX512F__)
#include "kernel/cpu/level/simd_avx512.h"
#include "kernel/cpu/level/simd_x86.h"
#else
#include "kernel/cpu/level/simd_avx2.h"
#include "kernel/cpu/level/simd_x86.h"
#endif

namespace weft::WEFT_LEVEL {

struct Full {};
struct Part {
  int n;
};

template <typename T>
WEFT_INLINE Vec load(const T* p, Full) {
  return load(p);
}
template <typename T>
WEFT_INLINE Vec load(const T* p, Part part) {  // missing lanes are zero
  return load_first(p, part.n);
}
template <typename T>
WEFT_INLINE void store(T* p, Vec v, Full) {
  store(p, v);
}
template <typename T>
WEFT_INLINE void store(T* p, Vec v, Part part) {
  store_first(p, v, part.n);
}
// v with its missing lanes set to `fill`.
WEFT_INLINE Vec fill_rest(Vec v, float, Full) { return v; }
WEFT_INLINE Vec fill_rest(Vec v, float fill, Part part) {
  return select(first_lanes(part.n), v, splat(fill));
}

WEFT_INLINE int64_t lesser(int64_t a, int64_t b) { return a < b ? a : b; }
WEFT_INLINE int64_t greater(int64_t a, int64_t b) { return a > b ? a : b; }
WEFT_INLINE int64_t blocks_of(int64_t n, int64_t block) { return (n + block - 1) / block; }
WEFT_INLINE int64_t round_up(int64_t n, int64_t block) { return blocks_of(n, block) * block; }

// body(i, Full) for every whole vector of [0, n), then body(i, Part) for the rest.
template <typename Body>
WEFT_INLINE void each_vector(int64_t n, const Body& body) {
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) body(i, Full{});
  if (i < n) body(i, Part{static_cast<int>(n - i)});
}

// body(T{}) with the element type that `dtype` names.
template <typename Body>
WEFT_INLINE void with_type(Dtype dtype, const Body& body) {
  if (dtype == Dtype::kBf16) {
    body(Bf16{});
  } else {
    body(float{});
  }
}

}  // namespace weft::WEFT_LEVEL
