// kernel/cuda/gelu_tanh.h: GELU's tanh form, for gelu and geglu.
#pragma once

#include "kernel/cuda/values.h"

namespace weft::cuda {

inline constexpr float kGeluRoot = 0.797884561f;  // sqrt(2 / pi)
inline constexpr float kGeluCubic = 0.044715f;

// The distribution function, or its approximation; the derivative of x times it.
struct Gelu {
  float below, slope;
};

// (1 + tanh(u)) / 2 is sigmoid(2 u), whose smaller half, sigmoid(-|2 u|), is computed: both tails
// keep their digits, which the slope multiplies by up to 40. At 16 it is 0: larger values must not
// become infinity times zero. (Not fminf and fmaxf: NaN stays.)
template <typename T>
__device__ __forceinline__ Gelu with_tanh(float x) {
  const float c = x > 16.0f ? 16.0f : x < -16.0f ? -16.0f : x;
  const float twice_u = c * fmaf(c * c, 2.0f * kGeluRoot * kGeluCubic, 2.0f * kGeluRoot);
  const float tail = divide_for(T{}, 1.0f, 1.0f + exp_for(T{}, fabsf(twice_u)));
  const float s = twice_u < 0.0f ? tail : 1.0f - tail;
  const float inner_slope = fmaf(c * c, 6.0f * kGeluRoot * kGeluCubic, 2.0f * kGeluRoot);
  return {s, fmaf(c * tail * (1.0f - tail), inner_slope, s)};
}

}  // namespace weft::cuda
