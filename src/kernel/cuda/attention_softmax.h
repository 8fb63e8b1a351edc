// kernel/cuda/attention_softmax.h: the running softmax of the forward kernels of attention.
#pragma once

#include <cmath>

#include "kernel/cuda/attention_launch.h"
#include "kernel/cuda/attention_score.h"
#include "kernel/cuda/attention_tiles.h"

namespace weft::cuda {

// What a thread keeps of its two queries, r = lane / 4 and r + 8 of its warp.
template <int kTiles>
struct State {
  float m[2], l[2];  // l: only over this thread's keys until the end
  float out[kTiles][4];
};

__device__ __forceinline__ float quad_max(float v) {
  v = fmaxf(v, __shfl_xor_sync(~0u, v, 1));
  return fmaxf(v, __shfl_xor_sync(~0u, v, 2));
}
__device__ __forceinline__ float quad_sum(float v) {
  v += __shfl_xor_sync(~0u, v, 1);
  return v + __shfl_xor_sync(~0u, v, 2);
}

// scores -> weights exp(score - m), with m raised to them and the state scaled down accordingly.
template <typename Value, int kKeyTiles, int kTiles>
__device__ __forceinline__ void weigh(float (&scores)[kKeyTiles][4], State<kTiles>& state) {
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    float highest = state.m[half];
#pragma unroll
    for (int n = 0; n < kKeyTiles; ++n) {
      highest = fmaxf(highest, fmaxf(scores[n][2 * half], scores[n][2 * half + 1]));
    }
    highest = quad_max(highest);
    // Nothing seen yet: any finite number turns -infinity into zeros.
    const float base = highest == -INFINITY ? 0.0f : highest;
    const float factor = exponential(Value{}, state.m[half] - base);
    float sum = state.l[half] * factor;
#pragma unroll
    for (int n = 0; n < kKeyTiles; ++n) {
#pragma unroll
      for (int i = 2 * half; i < 2 * half + 2; ++i) {
        scores[n][i] = exponential(Value{}, scores[n][i] - base);
        sum += scores[n][i];
      }
    }
    state.m[half] = highest;
    state.l[half] = sum;
#pragma unroll
    for (int n = 0; n < kTiles; ++n) {
      state.out[n][2 * half] *= factor;
      state.out[n][2 * half + 1] *= factor;
    }
  }
}

template <typename Value>
struct ForwardTensors {
  Strided<const Value> q, k, v;
  Strided<Value> out;
  float* lse;
};
template <typename Value>
ForwardTensors<Value> forward_tensors(const AttentionArgs& args) {
  return {.q = strided<const Value>(args.q),
          .k = strided<const Value>(args.k),
          .v = strided<const Value>(args.v),
          .out = strided<Value>(args.out),
          .lse = args.lse};
}

// a / b, with 1 / b given. In 16 bits what is left over corrects the quotient, which is a third of
// the work of a division.
__device__ __forceinline__ float quotient(float, float a, float b, float) { return a / b; }
template <typename T>
__device__ __forceinline__ float quotient(T, float a, float b, float reciprocal) {
  const float first = a * reciprocal;
  return fmaf(fmaf(-first, b, a), reciprocal, first);
}

// The lane's two queries: outputs divided by their sums, and the logarithm of these.
template <typename Value, int kTiles>
__device__ void put_output(State<kTiles>& state, const int (&query)[2], int length, int b, int h,
                           const Heads& heads, const ForwardTensors<Value>& tensors) {
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int t = query[half];
    const float l = quad_sum(state.l[half]);
    if (t >= heads.T) continue;
    const bool is_empty = t >= length || l == 0.0f;  // padding, or no key is seen
    const float reciprocal = __frcp_rn(l);
#pragma unroll
    for (int n = 0; n < kTiles; ++n) {
#pragma unroll
      for (int i = 2 * half; i < 2 * half + 2; ++i) {
        state.out[n][i] = is_empty ? 0.0f : quotient(Value{}, state.out[n][i], l, reciprocal);
      }
    }
    put_row(tensors.out.at(b, t, h), state.out, half, 0, heads);
    if (tensors.lse != nullptr && lane_of_warp() % 4 == 0) {
      tensors.lse[heads.statistic(b, h, t)] = is_empty ? 0.0f : state.m[half] + logf(l);
    }
  }
}

}  // namespace weft::cuda
