// kernel/cuda/attention_warpgroup.h: products of the four warps of a block together, with tiles
// that are read once for all of them.
//
// Where the GPU has instructions for that (wgmma.h), all warps call these functions together,
// between begin_products and end_products, and use results only after that. Elsewhere, and without
// kWgmma, every warp reads the tile itself; bits are the same.
//
// The tiles are those that the instructions want, with kSplit rows (attention_fragments.h), from a
// multiple of 1024 bytes on. Own rows: part p has rows 64 p .. 64 p + 63, of which warp w has 16
// from 64 p + 16 w on.
#pragma once

#include "kernel/cuda/attention_fragments.h"
#include "kernel/cuda/wgmma.h"

namespace weft::cuda {

inline constexpr bool kTogether = WEFT_HAS_WGMMA != 0;  // warps may not go separate ways

template <int kD, int kRows, int kTiles, typename Value>
__device__ __forceinline__ void multiply_each(float (&c)[kTiles][4],
                                              const uint32_t (&own)[kD / 16][4],
                                              const Value* shared, int tile, int columns) {
  const int lane = lane_of_warp();
  const LaneReads<kD, kRows> reads(tile, lane % 8 + lane / 16 * 8, lane / 8 % 2);
#pragma unroll
  for (int k = 0; k < kD / 16; ++k) {
    if (!is_used(16 * k, columns)) break;
#pragma unroll
    for (int n = 0; n < kTiles; n += 2) {
      uint32_t y[4];
      load_matrices(y, reads.at(shared, k, n * 8));
      mma(Value{}, c[n], own[k], y[0], y[1]);
      mma(Value{}, c[n + 1], own[k], y[2], y[3]);
    }
  }
}

template <int kD, int kOwnRows, int kRows, int kParts, int kTiles, typename Value>
__device__ __forceinline__ void multiply_each_tiles(float (&c)[kParts][kTiles][4],
                                                    const Value* shared, int own, int tile,
                                                    int columns) {
  const int lane = lane_of_warp(), row = static_cast<int>(threadIdx.x) / 32 * 16;
  const LaneReads<kD, kOwnRows> own_reads(own, row + lane % 16, lane / 16);
  const LaneReads<kD, kRows> reads(tile, lane % 8 + lane / 16 * 8, lane / 8 % 2);
#pragma unroll
  for (int k = 0; k < kD / 16; ++k) {
    if (!is_used(16 * k, columns)) break;
    uint32_t x[kParts][4];
#pragma unroll
    for (int part = 0; part < kParts; ++part) {
      load_matrices(x[part], own_reads.at(shared, k, part * 64));
    }
#pragma unroll
    for (int n = 0; n < kTiles; n += 2) {
      uint32_t y[4];
      load_matrices(y, reads.at(shared, k, n * 8));
#pragma unroll
      for (int part = 0; part < kParts; ++part) {
        mma(Value{}, c[part][n], x[part], y[0], y[1]);
        mma(Value{}, c[part][n + 1], x[part], y[2], y[3]);
      }
    }
  }
}

template <int kD, int kRows, int kParts, int kSteps, typename Result, typename Value>
__device__ __forceinline__ void add_each_weighted(const Result& result,
                                                  const uint32_t (&weights)[kParts][kSteps][4],
                                                  const Value* shared, int tile, int columns) {
  const int lane = lane_of_warp();
  const LaneReads<kD, kRows> reads(tile, lane % 16, lane / 16);
#pragma unroll
  for (int k = 0; k < kSteps; ++k) {
#pragma unroll
    for (int n = 0; n < kD / 8; n += 2) {
      if (!is_used(8 * n, columns)) break;
      uint32_t y[4];
      load_matrices_transposed(y, reads.at(shared, n / 2, k * 16));
#pragma unroll
      for (int part = 0; part < kParts; ++part) {
        mma(Value{}, result(part)[n], weights[part][k], y[0], y[1]);
        mma(Value{}, result(part)[n + 1], weights[part][k], y[2], y[3]);
      }
    }
  }
}

#if WEFT_HAS_WGMMA
template <typename Value>
__device__ __forceinline__ uint32_t shared_address(const Value* shared, int byte) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(shared)) + static_cast<uint32_t>(byte);
}
// Columns 16 k .. of a tile of kRows rows.
template <int kRows>
__device__ __forceinline__ constexpr uint32_t columns_at(int k) {
  return static_cast<uint32_t>(k / 4 * kRows * 128 + k % 4 * 32);
}

#endif

// c (64, 8 kTiles) += own rows in registers · rows of a tile of kRows, from byte `tile` on.
template <int kD, int kRows, bool kWgmma = kTogether, int kTiles, typename Value>
__device__ __forceinline__ void multiply_all(float (&c)[kTiles][4],
                                             const uint32_t (&own)[kD / 16][4], const Value* shared,
                                             int tile, int columns) {
  if constexpr (!kWgmma) {
    multiply_each<kD, kRows>(c, own, shared, tile, columns);
  } else {
#if WEFT_HAS_WGMMA
    const uint32_t at = shared_address(shared, tile);
#pragma unroll
    for (int k = 0; k < kD / 16; ++k) {
      wgmma<false>(Value{}, c, own[k], matrix_at(at + columns_at<kRows>(k)));
    }
#endif
  }
}

// The same with own rows in a tile of kOwnRows at byte `own`.
template <int kD, int kOwnRows, int kRows, int kParts, int kTiles, typename Value>
__device__ __forceinline__ void multiply_tiles(float (&c)[kParts][kTiles][4], const Value* shared,
                                               int own, int tile, int columns) {
  if constexpr (!kTogether) {
    multiply_each_tiles<kD, kOwnRows, kRows>(c, shared, own, tile, columns);
  } else {
#if WEFT_HAS_WGMMA
    const uint32_t of_own = shared_address(shared, own), at = shared_address(shared, tile);
#pragma unroll
    for (int part = 0; part < kParts; ++part) {
#pragma unroll
      for (int k = 0; k < kD / 16; ++k) {
        wgmma_of_tiles(Value{}, c[part], matrix_at(of_own + part * 8192 + columns_at<kOwnRows>(k)),
                       matrix_at(at + columns_at<kRows>(k)));
      }
    }
#endif
  }
}

// result(part) (64, kD) += weights (64, 16 kSteps) · rows of a tile of kRows, from byte `tile` on.
template <int kD, int kRows, bool kWgmma = kTogether, int kParts, int kSteps, typename Result,
          typename Value>
__device__ __forceinline__ void add_all_weighted(const Result& result,
                                                 const uint32_t (&weights)[kParts][kSteps][4],
                                                 const Value* shared, int tile, int columns) {
  if constexpr (!kWgmma) {
    add_each_weighted<kD, kRows>(result, weights, shared, tile, columns);
  } else {
#if WEFT_HAS_WGMMA
    const uint32_t at = shared_address(shared, tile);
#pragma unroll
    for (int part = 0; part < kParts; ++part) {
      float(&c)[kD / 8][4] = result(part);
#pragma unroll
      for (int k = 0; k < kSteps; ++k) {
#pragma unroll
        for (int n = 0; n + 8 <= kD / 8; n += 8) {
          wgmma<true>(Value{}, reinterpret_cast<float(&)[8][4]>(c[n]), weights[part][k],
                      matrix_at(at + n / 8 * kRows * 128 + k * 2048));
        }
        if constexpr (kD % 64 != 0) {
          static_assert(kD % 64 == 32);
          wgmma<true>(Value{}, reinterpret_cast<float(&)[4][4]>(c[kD / 8 - 4]), weights[part][k],
                      matrix_at(at + kD / 64 * kRows * 128 + k * 2048));
        }
      }
    }
#endif
  }
}

}  // namespace weft::cuda
