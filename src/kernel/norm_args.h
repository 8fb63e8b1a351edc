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

// Every head of q and of k in x (R, (H + 2 G) D) is a row of rmsnorm, with one weight for all heads
// of q and one for those of k; v is copied.
struct QkNormArgs {
  int64_t R, H, G, D;
  Dtype dtype;
  float eps;
  int weight_offset;  // as in rmsnorm
  const void* x;
  const void* q_weight;  // (D)
  const void* k_weight;  // (D)
  void* y;               // may be x itself
  float* rstd;           // (R, H + G)
};

// The gradients of the weights are sums over tokens and heads. The heads are `leaves` equal groups,
// of q's and of k's alike, and each has its own sums, whose bits do not depend on how many groups
// there are: exact mode adds them up in a tree over all ranks.
inline constexpr int kMaxHeadLeaves = 8;
struct QkNormBackwardArgs {
  int64_t R, H, G, D;
  Dtype dtype, grad_dtype;
  int weight_offset;
  int leaves;  // divides H and G
  const void* dy;
  const void* x;
  const void* q_weight;
  const void* k_weight;
  const float* rstd;
  void* dx;                         // may be dy or x itself
  void* dq_weight[kMaxHeadLeaves];  // (D) of grad_dtype each, or all null where it is frozen
  void* dk_weight[kMaxHeadLeaves];
  bool accumulate;
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
