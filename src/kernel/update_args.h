// kernel/update_args.h: arguments of the optimizers' updates of one parameter; see kernels.h.
#pragma once

#include <cstdint>

#include "tensor/dtype.h"

namespace weft {

// AdamW as torch: g = grad * grad_scale; p *= 1 - lr * weight_decay; m, v; then
// p -= lr / bias1 * m / (sqrt(v) / sqrt(bias2) + eps), bias_i = 1 - beta_i^step. Inside in fp32.
// master null: p itself (of dtype) is read and written; else master (fp32) is, and p =
// round(master).
struct AdamwScalars {
  // In double: 1 - beta and the like are formed before they are rounded, as torch does.
  double lr, beta1, beta2, eps, weight_decay, bias1, bias2;
};
struct AdamwArgs {
  int64_t n;
  Dtype dtype;        // of p
  Dtype grad_dtype;   // of grad
  Dtype state_dtype;  // of m and v
  void* p;
  float* master;
  const void* grad;
  void* m;
  void* v;
  double grad_scale;
  AdamwScalars scalars;
};

// SGD as torch: g = grad * grad_scale + weight_decay * p; buffer = momentum * buffer + g; p -= lr *
// buffer. momentum null: there is no buffer, p -= lr * g. Types and master as with AdamW.
struct SgdScalars {
  double lr, momentum, weight_decay;
};
struct SgdArgs {
  int64_t n;
  Dtype dtype, grad_dtype, state_dtype;
  void* p;
  float* master;
  const void* grad;
  void* momentum;
  double grad_scale;
  SgdScalars scalars;
};

}  // namespace weft
