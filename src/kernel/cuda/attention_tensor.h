// kernel/cuda/attention_tensor.h: what the attention kernels for bf16 and fp16 with heads of up to
// 128 share.
//
// They are those of attention_builtin.cu, attention_dq.cu and attention_dkv.cu, for tensor cores:
// a warp's own 16 rows are fragments in registers, tiles of the other side arrive while the one
// before is used (attention_fragments.h), scores become weights without shared memory, and where a
// GPU can, the warps of a block multiply together (attention_warpgroup.h). What is computed, and in
// which order, is the same.
#pragma once

#include <type_traits>

#include "kernel/cuda/attention_drawn.h"
#include "kernel/cuda/attention_fragments.h"
#include "kernel/cuda/attention_launch.h"
#include "kernel/cuda/attention_score.h"

namespace weft::cuda {

inline constexpr int64_t kMostTensorHeadDim = 128;
inline bool uses_tensor_kernels(const AttentionOperands& args) {
  return args.dtype != Dtype::kF32 && args.D <= kMostTensorHeadDim;
}

// fn(Value, integral constant kD): the smallest kD that holds D.
template <typename Fn>
void with_tensor_shape(Dtype dtype, int64_t D, const Fn& fn) {
  const auto with_value = [&](auto value) {
    if (D <= 64) {
      fn(value, std::integral_constant<int, 64>{});
    } else if (D <= 96) {
      fn(value, std::integral_constant<int, 96>{});
    } else {
      fn(value, std::integral_constant<int, 128>{});
    }
  };
  if (dtype == Dtype::kBf16) {
    with_value(Bf16{});
  } else {
    with_value(Half{});
  }
}

// What a block of a grid (tiles, heads ..) processes. Blocks start in the order of tiles of a few
// heads together, whose other side stays in the cache: tiles with the most work come first, so
// that at the end short ones are left.
struct BlockPlace {
  int x, y, z;
};
__device__ __forceinline__ BlockPlace place_of_block() {
  constexpr int kHeads = 16;  // together
  const int tiles = static_cast<int>(gridDim.x), of_y = static_cast<int>(gridDim.y);
  const int heads = of_y * static_cast<int>(gridDim.z);
  const int head = static_cast<int>(blockIdx.z) * of_y + static_cast<int>(blockIdx.y);
  const int first = head / kHeads * kHeads, count = min(kHeads, heads - first);
  const int i = (head - first) * tiles + static_cast<int>(blockIdx.x), its = first + i % count;
  return {i / count, its % of_y, its / of_y};
}

// Which of the other side's positions all 16 rows of a warp see, where `rows` are what its first
// and its last row see: ranges begin and end later the later the row is.
__device__ inline Seen seen_by_all(const Seen& first, const Seen& last) {
  return {max(first.begin, last.begin), min(first.end, last.end)};
}
__device__ inline bool is_inside(const Seen& seen, int from, int count) {
  return from >= seen.begin && from + count <= seen.end;
}

// Products of a warp's rows with columns -> scores. line: a head's biases, from that of this
// thread's first row and column on; kStep: 1 where columns are keys, -1 where they are queries.
template <int kStep, int kTiles, typename Score>
__device__ __forceinline__ void score_products(float (&products)[kTiles][4], const Score& score,
                                               const float* line) {
  if constexpr (Score::kHasBias) {
    // By distance: rows eight further down see what columns eight before do.
    float bias[kTiles + 1][2];
#pragma unroll
    for (int n = 0; n <= kTiles; ++n) {
#pragma unroll
      for (int e = 0; e < 2; ++e) bias[n][e] = line[kStep * ((n - 1) * 8 + e)];
    }
#pragma unroll
    for (int n = 0; n < kTiles; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        products[n][i] = fmaf(products[n][i], score.scale, bias[n + 1 - i / 2][i % 2]);
      }
    }
  } else {
#pragma unroll
    for (int n = 0; n < kTiles; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) products[n][i] *= score.scale;
    }
  }
}

// Scores of pairs that are not seen become -infinity. column: the tile's first.
template <int kTiles>
__device__ __forceinline__ void hide_unseen(float (&scores)[kTiles][4], int column,
                                            const Seen (&seen)[2]) {
#pragma unroll
  for (int n = 0; n < kTiles; ++n) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int at = column + n * 8 + lane_of_warp() % 4 * 2 + i % 2;
      if (!seen[i / 2](at)) scores[n][i] = -INFINITY;
    }
  }
}

// lines: of the bias; mask: memory for that of dropout, drawn_bytes.
void tensor_attention(const Context&, const AttentionArgs&, const float* lines, std::byte* mask);

}  // namespace weft::cuda
