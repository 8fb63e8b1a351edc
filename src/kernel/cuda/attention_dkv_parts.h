// kernel/cuda/attention_dkv_parts.h: groups of heads whose dk and dv several blocks sum up.
//
// A group of several heads is divided among up to kMostParts blocks, whose sums are added last, in
// the order of the heads: a block for all of them would leave most of a GPU without work.
#pragma once

#include <algorithm>

#include "kernel/cuda/attention_gradient.h"

namespace weft::cuda {

inline constexpr int64_t kMostParts = 4;
inline int64_t num_parts(const AttentionOperands& args) {
  return std::min(args.H / args.G, kMostParts);
}

// Sums of dk, then those of dv: (2, parts, B, S, G, D).
struct Parts {
  float* sums;  // null: there is one part, and the gradients themselves are written
  int count;
  int64_t rows;  // B S G
};
inline Parts parts_of(const AttentionBackwardArgs& args, const GradientWorkspace& workspace) {
  const int64_t count = num_parts(args);
  return {count > 1 ? workspace.parts : nullptr, static_cast<int>(count), args.B * args.S * args.G};
}

// The lane's two keys: their gradients, or what this part has of them.
template <int kTiles, typename Value>
__device__ __forceinline__ void put_gradients(const float (&dk)[kTiles][4],
                                              const float (&dv)[kTiles][4], int b, int g, int part,
                                              const int (&key)[2], const Heads& heads,
                                              const Parts& parts,
                                              const GradientTensors<Value>& tensors) {
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    if (key[half] >= heads.S) continue;
    if (parts.sums == nullptr) {
      put_row(tensors.dk.at(b, key[half], g), dk, half, 0, heads);
      put_row(tensors.dv.at(b, key[half], g), dv, half, 0, heads);
    } else {
      const int64_t row = (int64_t{b} * heads.S + key[half]) * heads.G + g;
      put_row(parts.sums + (part * parts.rows + row) * heads.D, dk, half, 0, heads);
      put_row(parts.sums + ((parts.count + part) * parts.rows + row) * heads.D, dv, half, 0, heads);
    }
  }
}

}  // namespace weft::cuda
