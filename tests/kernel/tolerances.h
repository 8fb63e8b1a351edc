// tests/kernel/tolerances.h: how far a level may differ from ref, and why.
//
// Errors are measured against the size of the whole result: |got - want| <= relative * |want| +
// absolute * scale, where scale is the largest |want| of the tensor.
#pragma once

#include "tensor/dtype.h"

namespace weft {

struct Tolerance {
  double relative, absolute;
};

// fp32 works with 24 bits (6e-8); a sum of up to a thousand terms in fp32, its own exp (1-2 ulp)
// and a second use of a rounded value lose a few bits more.
inline constexpr Tolerance kFloatTolerance = {2e-6, 2e-6};

// bf16 has 8 bits: a result rounded the other way differs by 2^-8 = 4e-3 of its size. Where an
// intermediate value is rounded to bf16 (the normed s of rmsnorm) the difference can double.
inline constexpr Tolerance kBf16Tolerance = {9e-3, 1e-5};

// fp16 has 11 bits: 2^-11 = 5e-4, doubled likewise. Below 2^-14 it keeps fewer: half of 2^-24, of
// results that are about 1 in size.
inline constexpr Tolerance kHalfTolerance = {1.2e-3, 1e-6};

// Attention: P (dP - delta) cancels; what is lost is relative to the terms, not to the result.
inline constexpr Tolerance kAttentionFloat = {2e-5, 2e-6};
// With bf16 a level may round P and dS to bf16 (2^-9 of each term), as GPUs do: an element that is
// small because its terms cancel keeps the error of the terms.
inline constexpr Tolerance kAttentionBf16 = {9e-3, 2e-3};

inline constexpr Tolerance kAttentionHalf = {1.2e-3, 2.5e-4};  // the same with 2^-12

inline Tolerance tolerance_of(Dtype dtype) {
  return dtype == Dtype::kBf16  ? kBf16Tolerance
         : dtype == Dtype::kF16 ? kHalfTolerance
                                : kFloatTolerance;
}
inline Tolerance attention_tolerance(Dtype dtype) {
  return dtype == Dtype::kBf16  ? kAttentionBf16
         : dtype == Dtype::kF16 ? kAttentionHalf
                                : kAttentionFloat;
}

// With a bias or a window few keys have most of a query's weight: the errors of their rounded P and
// dS do not average out.
inline Tolerance biased_attention_tolerance(Dtype dtype) {
  const Tolerance t = attention_tolerance(dtype);
  return {t.relative, dtype == Dtype::kF32 ? t.absolute : 2 * t.absolute};
}

// Central differences in fp32 inputs, float64 inside ref: outputs are stored in fp32, so a
// difference of step 2^-6 carries 6e-8 / 2^-6 = 4e-6 of noise and a cubic term of about 2^-12.
inline constexpr double kDifferenceStep = 0x1p-6;
inline constexpr double kDifferenceTolerance = 2e-3;

// exp, log and erf, in units in the last place of a float.
inline constexpr double kExpUlp = 1.0;
inline constexpr double kLogUlp = 1.0;
inline constexpr double kErfUlp = 1.5;

// GELU in fp32, relative to max(1, |x|): erf (1.5 ulp) or sigmoid, the rounding of its argument and
// three more.
inline constexpr double kGeluError = 4 * 0x1p-24;

}  // namespace weft
