// kernel/norm_args.h: arguments of the norms (kernel/kernels.h, whose legend applies).
#pragma once

#include <cstdint>

#include "tensor/dtype.h"

namespace weft {

// s = x + residual (residual null: s = x and sum may be null); y = s * rstd * weight, with
// rstd = 1 / sqrt(mean(s^2) + eps). As in transformers s * rstd is rounded to dtype before the
// weight multiplies; the statistics are of the rounded s. With weight_offset 1 (Gemma) y is
// s * rstd * (1 + weight), all of it fp32 until one rounding at the end.
struct RmsNormArgs {
  int64_t R, C;
  Dtype dtype;
  float eps;
  const void* x;         // (R, C)
  const void* residual;  // (R, C) or null
  const void* weight;    // (C)
  void* sum;             // (R, C): s
  void* y;               // (R, C), null: only the statistics and s
  float* rstd;           // (R)
  bool reuse_rstd;       // true: rstd is an input (recomputation of y; same bits as the first time)
  int weight_offset = 0;  // 0 or 1
};

// dx = gradient through the norm + dsum (what flows into s from elsewhere, null: nothing).
struct RmsNormBackwardArgs {
  int64_t R, C;
  Dtype dtype, grad_dtype;
  const void* dy;
  const void* dsum;
  const void* s;
  const void* weight;
  const float* rstd;
  void* dx;       // may be dy or dsum itself
  void* dweight;  // (C) of grad_dtype, or null where the weight is frozen
  bool accumulate;
  int weight_offset = 0;
};

// s = x + residual (residual null: s = x and sum may be null); y = (s - mean) * rstd * weight +
// bias, with rstd = 1 / sqrt(variance + eps), the variance biased and of s - mean (two passes over
// the row). As PyTorch does with bf16, everything is fp32 until one rounding at the end: unlike
// rmsnorm's, the normalized s is not rounded before the weight multiplies. The statistics are of
// the rounded s.
struct LayerNormArgs {
  int64_t R, C;
  Dtype dtype;
  float eps;
  const void* x;         // (R, C)
  const void* residual;  // (R, C) or null
  const void* weight;    // (C)
  const void* bias;      // (C) or null
  void* sum;             // (R, C): s
  void* y;               // (R, C), null: only the statistics and s
  float* mean;           // (R)
  float* rstd;           // (R)
  // true: mean and rstd are inputs, x is s, residual and sum are null (y again, with its bits).
  bool reuse_statistics;
};

// dx = gradient through the norm + dsum (what flows into s from elsewhere, null: nothing).
struct LayerNormBackwardArgs {
  int64_t R, C;
  Dtype dtype, grad_dtype;
  const void* dy;
  const void* dsum;
  const void* s;
  const void* weight;
  const float* mean;
  const float* rstd;
  void* dx;         // may be dy or dsum itself
  void* dweight;    // (C) of grad_dtype, or null where the weight is frozen
  void* dbias;      // the same; null too where there is no bias
  bool accumulate;  // of dweight and dbias
};

}  // namespace weft
