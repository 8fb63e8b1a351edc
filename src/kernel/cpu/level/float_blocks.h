// kernel/cpu/level/float_blocks.h: the blocks of attention as fp32, whatever the tensors hold.
//
// Words of the attention kernels: "left" is the left operand of a product, "right" the right one.
// A block of the tensors is (rows, D); scores are (64, 64). Packed blocks fill up with zeros.
#pragma once

#include "kernel/cpu/level/block.h"

namespace weft::WEFT_LEVEL {

inline constexpr int64_t kBlock = 64;  // queries and keys of a block: 16 KB each at D = 64

// Channels of a head in scratch: whole tiles.
WEFT_INLINE int64_t padded(int64_t D) { return round_up(D, kTileColumns); }

// Floats of the room that packing and products may use in between.
WEFT_INLINE int64_t room_floats(int64_t D) { return kBlock * greater(kBlock, padded(D)); }

template <typename T>
struct FloatBlocks {
  using Element = float;

  // (rows, D) as the left operand of scores().
  static void pack_left(const T* from, int64_t ld, int64_t rows, int64_t D, float* to,
                        int64_t all_rows) {
    copy_block(from, ld, rows, D, to, padded(D), all_rows);
  }
  // (rows, D) as both, for queries: returns where the right operand of weighted() lies.
  static const float* pack_both(const T* from, int64_t ld, int64_t rows, int64_t D, float* left,
                                float*) {
    copy_block(from, ld, rows, D, left, padded(D), round_up(rows, kTileRows));
    return left;
  }
  // (rows, D) as the right operand of scores(): its transpose (D, 64).
  static void pack_right_rows(const T* from, int64_t ld, int64_t rows, int64_t D, float* to,
                              float* room) {
    copy_block(from, ld, rows, D, room, padded(D), kBlock);
    transpose_block(room, padded(D), kBlock, padded(D), to, kBlock);
  }
  // (rows, D) as the right operand of weighted().
  static void pack_right(const T* from, int64_t ld, int64_t rows, int64_t D, float* to) {
    copy_block(from, ld, rows, D, to, padded(D), kBlock);
  }

  // s (M, 64) = left · right.
  static void scores(int64_t M, int64_t Dp, const float* left, const float* right, float* s,
                     Shape shape) {
    multiply<false, Old::kReplace>(M, kBlock, Dp, left, Dp, right, kBlock, s, kBlock, shape);
  }
  // c (M, Dp) (+)= s · right.
  template <Old kOld>
  static void weighted(int64_t M, int64_t Dp, const float* s, const float* right, float* c,
                       Shape shape, float*, const float* scale = nullptr) {
    multiply<false, kOld>(M, Dp, kBlock, s, kBlock, right, Dp, c, Dp, shape, scale);
  }
  // c (M, Dp) += s^T · right, over the first K rows of s.
  static void weighted_transposed(int64_t M, int64_t K, int64_t Dp, const float* s,
                                  const float* right, float* c, Shape shape, float*) {
    multiply<true, Old::kAdd>(M, Dp, K, s, kBlock, right, Dp, c, Dp, shape);
  }
};

}  // namespace weft::WEFT_LEVEL
