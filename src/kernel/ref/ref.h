// kernel/ref/ref.h: the reference for tests: every operation slow and obvious, float64 inside.
#pragma once

#include "kernel/kernels.h"

namespace weft::ref {

inline double get(const void* data, Dtype dtype, int64_t i) { return load_element(data, dtype, i); }
inline void put(void* data, Dtype dtype, int64_t i, double v) {
  store_element(data, dtype, i, static_cast<float>(v));
}
// v rounded to its storage type.
inline double rounded(Dtype dtype, double v) {
  float stored;  // wide enough for all of them
  put(&stored, dtype, 0, v);
  return get(&stored, dtype, 0);
}

// A complete sum, and the other addends of its element: each is an fp32 number that some rank may
// have held in memory, so they are added as such. Exact mode relies on this: results must not
// depend on which rank adds.
inline double plus_fp32(double sum, double other) {
  return static_cast<float>(sum) + static_cast<float>(other);
}

inline constexpr int64_t kMaxHeadDim = 256;  // of attention over whole sequences

WEFT_KERNELS(WEFT_DECLARE_PLAIN, WEFT_DECLARE_PLAIN)  // no kernel of ref has scratch

}  // namespace weft::ref
