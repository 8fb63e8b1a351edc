// kernel/cuda/attention_score.h: scores out of products of queries and keys.
//
// The kernels are compiled once with PlainScore and once with BiasedScore.
#pragma once

#include <cstdint>

#include "kernel/cuda/attention.h"
#include "kernel/cuda/values.h"

namespace weft::cuda {

// The score of a key at `distance` from a query, of head h. A pair that is not seen has no bias.
struct PlainScore {
  static constexpr bool kHasBias = false;
  float scale;
  __device__ __forceinline__ float operator()(float product, int, int) const {
    return product * scale;
  }
  __device__ __forceinline__ const float* line(int, int) const { return nullptr; }
};
struct BiasedScore {
  static constexpr bool kHasBias = true;
  float scale;
  const float* lines;  // (H, pitch), that of distance 0 at `origin` (attention_bias.cu)
  int64_t pitch;
  int origin;
  __device__ __forceinline__ float operator()(float product, int h, int distance) const {
    return fmaf(product, scale, *line(h, distance));
  }
  // From this distance on; kBiasReach beyond those that occur are there too.
  __device__ __forceinline__ const float* line(int h, int distance) const {
    return lines + h * pitch + origin + distance;
  }
};

// e^v as exp_for has it (values.h), but in 16 bits zero where that would be subnormal: checks for
// that take as long as the rest.
__device__ __forceinline__ float exponential(float, float v) { return expf(v); }
template <typename T>
__device__ __forceinline__ float exponential(T, float v) {
#if defined(__CUDA_ARCH__)
  constexpr float kLog2OfE = 0x1.715476p+0f;
  float result;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(v * kLog2OfE));
  return result;
#else
  return expf(v);
#endif
}

// fn(PlainScore) or fn(BiasedScore), whose lines were computed.
template <typename Fn>
void with_score(const AttentionOperands& args, const float* lines, const Fn& fn) {
  if (args.bias.kind == AttentionBias::Kind::kNone) return fn(PlainScore{args.scale});
  fn(BiasedScore{args.scale, lines, bias_line_floats(args),
                 static_cast<int>(args.T - 1) + kBiasReach});
}

}  // namespace weft::cuda
