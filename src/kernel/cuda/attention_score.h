// kernel/cuda/attention_score.h: scores out of products of queries and keys.
//
// The kernels are compiled once with PlainScore and once with BiasedScore.
#pragma once

#include <cstdint>

#include "kernel/cuda/attention.h"

namespace weft::cuda {

// The score of a key at `distance` from a query, of head h. A pair that is not seen has no bias.
struct PlainScore {
  static constexpr bool kHasBias = false;
  float scale;
  __device__ __forceinline__ float operator()(float product, int, int) const {
    return product * scale;
  }
};
struct BiasedScore {
  static constexpr bool kHasBias = true;
  float scale;
  const float* lines;  // (H, pitch), that of distance 0 at `origin` (attention_bias.cu)
  int64_t pitch;
  int origin;
  __device__ __forceinline__ float operator()(float product, int h, int distance) const {
    return fmaf(product, scale, lines[h * pitch + origin + distance]);
  }
};

// fn(PlainScore) or fn(BiasedScore), whose lines were computed.
template <typename Fn>
void with_score(const AttentionOperands& args, const float* lines, const Fn& fn) {
  if (args.bias.kind == AttentionBias::Kind::kNone) return fn(PlainScore{args.scale});
  fn(BiasedScore{args.scale, lines, bias_line_floats(args), static_cast<int>(args.T - 1)});
}

}  // namespace weft::cuda
