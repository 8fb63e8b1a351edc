// kernel/cpu/level/float_blocks.h: the blocks of attention as fp32, whatever the tensors hold.
//
// Terms of the attention kernels: "left" is the left operand of a product, "right" the right one. A
// block of the tensors is (rows, D), its scores against another (rows, other rows). Packed blocks
// are padded with zeros.
#pragma once

#include "kernel/cpu/level/block.h"

namespace weft::WEFT_LEVEL {

inline constexpr int64_t kBlock = 64;  // queries and keys of a block: 16 KB each at D = 64

// Channels of a head in scratch: whole tiles.
WEFT_INLINE int64_t padded(int64_t D) { return round_up(D, kTileColumns); }

// Floats of the scratch that packing and products may use.
WEFT_INLINE int64_t staging_floats(int64_t D) { return kBlock * greater(kBlock, padded(D)); }

template <typename T>
struct FloatBlocks {
  using Element = float;

  // (rows, D) as an operand of scores(): its transpose (Dp, all_rows).
  static void pack_rows(const T* from, int64_t ld, int64_t rows, int64_t D, float* to,
                        int64_t all_rows, float* staging) {
    copy_block(from, ld, rows, D, staging, padded(D), all_rows);
    transpose_block(staging, padded(D), all_rows, padded(D), to, all_rows);
  }
  // (rows, D) as the right operand of a weighted sum.
  static void pack_right(const T* from, int64_t ld, int64_t rows, int64_t D, float* to) {
    copy_block(from, ld, rows, D, to, padded(D), kBlock);
  }
  // Both, for 64 rows.
  static void pack_both(const T* from, int64_t ld, int64_t rows, int64_t D, float* to,
                        float* right) {
    copy_block(from, ld, rows, D, right, padded(D), kBlock);
    transpose_block(right, padded(D), kBlock, padded(D), to, kBlock);
  }

  // s (64, N - begin) = left · right from row `begin` of right on: packed by pack_rows, right with
  // N as all_rows. N is also the step from row to row of s.
  static void scores(int64_t N, int64_t begin, int64_t Dp, const float* left, const float* right,
                     float* s, Shape shape) {
    multiply<true, Old::kReplace>(kBlock, N - begin, Dp, left, kBlock, right + begin, N, s, N,
                                  shape);
  }
  // c (M, Dp) (+)= s^T · right for s (K, M).
  template <Old kOld>
  static void weighted(int64_t M, int64_t K, int64_t Dp, const float* s, int64_t ld,
                       const float* right, float* c, Shape shape, float*,
                       const float* scale = nullptr) {
    multiply<true, kOld>(M, Dp, K, s, ld, right, Dp, c, Dp, shape, scale);
  }
  // c (M, Dp) += s · right for s (M, 64).
  static void weighted_rows(int64_t M, int64_t Dp, const float* s, const float* right, float* c,
                            Shape shape, [[maybe_unused]] float* staging) {
#if defined(__aarch64__)  // wide tiles want s as (64, M)
    transpose_block(s, kBlock, M, kBlock, staging, M);
    return multiply<true, Old::kAdd>(M, Dp, kBlock, staging, M, right, Dp, c, Dp, shape);
#endif
    multiply<false, Old::kAdd>(M, Dp, kBlock, s, kBlock, right, Dp, c, Dp, shape);
  }
};

}  // namespace weft::WEFT_LEVEL
