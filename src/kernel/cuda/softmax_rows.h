// kernel/cuda/softmax_rows.h: what the kernels over rows of logits share: vectors of 16 bytes into
// a maximum and a sum of exp, and back into gradients.
//
// Which thread adds which column depends only on V: vector i belongs to thread i % blockDim.x,
// which adds its vectors in ascending order.
#pragma once

#include <algorithm>

#include "kernel/cuda/dispatch.h"
#include "kernel/cuda/launch.h"
#include "kernel/cuda/reduce.h"

namespace weft::cuda {

inline constexpr int kSoftmaxThreads = 1024;  // at most
inline constexpr float kLowest = -3.402823466e+38f;

struct Softmax {
  float highest;
  double sum;  // of exp(x - highest)
};

template <typename T>
__device__ __forceinline__ bool starts_aligned(const T* x) {
  return reinterpret_cast<uintptr_t>(x) % 16 == 0;
}

// The sum is rescaled where the maximum grows.
template <typename T>
__device__ __forceinline__ void add_vector(const float (&v)[kPack<T>], float& highest, float& sum) {
  float most = v[0];
#pragma unroll
  for (int k = 1; k < kPack<T>; ++k) most = fmaxf(most, v[k]);
  if (most > highest) {
    sum *= exp_for(T{}, highest - most);
    highest = most;
  }
  float part = 0.0f;
#pragma unroll
  for (int k = 0; k < kPack<T>; ++k) part += exp_for(T{}, v[k] - highest);
  sum += part;
}
template <typename T>
__device__ __forceinline__ void add_vector(Raw<T, kPack<T>> raw, float& highest, float& sum) {
  float v[kPack<T>];
  unpack(raw, v);
  add_vector<T>(v, highest, sum);
}

// All threads' columns, the same bits in each thread.
__device__ __forceinline__ Softmax join_threads(float highest, float sum) {
  const float most = join_block(highest, kLowest, Maximum{});
  const double part = static_cast<double>(sum) * static_cast<double>(expf(highest - most));
  return {most == kLowest ? -INFINITY : most, join_block(part, 0.0, Plus{})};
}

template <typename T, int kWidth>
__device__ __forceinline__ void scale_vector(T* at, Raw<T, kWidth> raw, float highest,
                                             float scale) {
  float v[kWidth];
  unpack(raw, v);
#pragma unroll
  for (int k = 0; k < kWidth; ++k) v[k] = exp_for(T{}, v[k] - highest) * scale;
  store(at, v);
}

template <typename T>
__device__ void zero_row(T* x, int V) {
  constexpr int kWidth = kPack<T>;
  const int vectors = starts_aligned(x) ? V / kWidth : 0;
  const float zeros[kWidth] = {};
  for (int i = threadIdx.x; i < vectors; i += blockDim.x) store(x + i * kWidth, zeros);
  for (int c = vectors * kWidth + threadIdx.x; c < V; c += blockDim.x) store_one(x + c, 0.0f);
}

// A function of V only: it determines the order of the sum.
inline int64_t softmax_threads(int64_t V) {
  if (V > INT32_MAX) refuse("a vocabulary of more than 2^31 ids");
  return std::clamp<int64_t>(ceil_div(V, 8 * kWarp) * kWarp, kWarp, kSoftmaxThreads);
}

}  // namespace weft::cuda
