// kernel/cuda/rms_weight.h: the two ways in which RMSNorm's weight multiplies.
//
// kOffset: by 1 + weight, and nothing is rounded before the end (Gemma); otherwise the normalized
// value is rounded before the weight multiplies it (Llama).
#pragma once

#include <type_traits>

#include "kernel/cuda/values.h"

namespace weft::cuda {

template <bool kOffset>
__device__ __forceinline__ float offset_weight(float weight) {
  return kOffset ? 1.0f + weight : weight;
}
// What the weight multiplies.
template <typename T, bool kOffset>
__device__ __forceinline__ float weighted_part(float normed) {
  return kOffset ? normed : rounded(T{}, normed);
}

// fn(std::bool_constant) of whether the weight has an offset.
template <typename Fn>
void with_offset(int weight_offset, const Fn& fn) {
  if (weight_offset != 0) {
    fn(std::true_type{});
  } else {
    fn(std::false_type{});
  }
}

}  // namespace weft::cuda
