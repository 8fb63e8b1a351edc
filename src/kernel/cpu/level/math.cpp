// kernel/cpu/level/math.cpp: exp, log and erf of this level over arrays, so that tests can measure
// them.
#include "kernel/cpu/level/simd_math.h"

namespace weft::WEFT_LEVEL {

void exp_all(const float* x, float* y, int64_t n);
void log_all(const float* x, float* y, int64_t n);
void erf_all(const float* x, float* y, int64_t n);

void exp_all(const float* x, float* y, int64_t n) {
  each_vector(n, [&](int64_t i, auto part) { store(y + i, exp(load(x + i, part)), part); });
}

void log_all(const float* x, float* y, int64_t n) {
  each_vector(n, [&](int64_t i, auto part) { store(y + i, log(load(x + i, part)), part); });
}

void erf_all(const float* x, float* y, int64_t n) {
  each_vector(n, [&](int64_t i, auto part) { store(y + i, erf(load(x + i, part)), part); });
}

}  // namespace weft::WEFT_LEVEL
