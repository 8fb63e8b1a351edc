// kernel/cpu/level/gemm_tile_bfmmla.h: the bf16 tile of ARM's BFMMLA, 8 rows by 12 columns.
//
// One instruction multiplies 2 rows by 4 k with 4 k by 2 columns into a 2 by 2 block, so an
// accumulator holds {c00, c01, c10, c11}. 24 of them (v8 to v31, six to a pair of rows), 4 vectors
// of A and 6 of B for 4 k: 24 instructions to 10 loads.
#pragma once

#include <cstdint>

#include "kernel/cpu/level/gemm_tile_neon.h"
#include "tensor/dtype.h"

namespace weft::WEFT_LEVEL {
namespace {

// clang-format off
#define WEFT_MMLA(acc, a, b) "bfmmla v" #acc ".4s, v" #a ".8h, v" #b ".8h\n"
// Two columns of the tile: its four pairs of rows times one vector of B.
#define WEFT_COLUMNS(c0, c1, c2, c3, b) \
  WEFT_MMLA(c0, 0, b) WEFT_MMLA(c1, 1, b) WEFT_MMLA(c2, 2, b) WEFT_MMLA(c3, 3, b)
// Two blocks {p0 p1 / p2 p3}, {q0 q1 / q2 q3} to rows {p0 p1 q0 q1}, {p2 p3 q2 q3}, or back.
#define WEFT_SWAP(c0, c1)                              \
  "trn1 v0.2d, v" #c0 ".2d, v" #c1 ".2d\n"             \
  "trn2 v" #c1 ".2d, v" #c0 ".2d, v" #c1 ".2d\n"       \
  "mov v" #c0 ".16b, v0.16b\n"
// After the swap the first of two registers holds the upper row, the second the lower one.
#define WEFT_MOVE_ROWS(op, c0, c1, c2, c3, c4, c5, at)                                       \
  #op " q" #c0 ", q" #c2 ", [%[tile], #" #at "]\n"                                           \
  #op " q" #c4 ", q" #c1 ", [%[tile], #" #at " + 32]\n"                                      \
  #op " q" #c3 ", q" #c5 ", [%[tile], #" #at " + 64]\n"
#define WEFT_MOVE_TILE(op)                                                                    \
  WEFT_MOVE_ROWS(op, 8, 9, 10, 11, 12, 13, 0) WEFT_MOVE_ROWS(op, 14, 15, 16, 17, 18, 19, 96)  \
  WEFT_MOVE_ROWS(op, 20, 21, 22, 23, 24, 25, 192)                                             \
  WEFT_MOVE_ROWS(op, 26, 27, 28, 29, 30, 31, 288)
#define WEFT_SWAPS                                                                            \
  WEFT_SWAP(8, 9) WEFT_SWAP(10, 11) WEFT_SWAP(12, 13) WEFT_SWAP(14, 15) WEFT_SWAP(16, 17)     \
  WEFT_SWAP(18, 19) WEFT_SWAP(20, 21) WEFT_SWAP(22, 23) WEFT_SWAP(24, 25) WEFT_SWAP(26, 27)   \
  WEFT_SWAP(28, 29) WEFT_SWAP(30, 31)

struct Bf16Tile {
  using Packed = Bf16;
  static constexpr int kMr = 8, kNr = 12, kGroupA = 4, kGroupB = 4, kStep = 4;
  static constexpr int64_t kMaxK = 1024;  // panels of 16 and 24 KiB: the L1 cache has 64

  static void prepare() {}

  static void multiply(int64_t k_count, const Bf16* a, const Bf16* b, float* tile, bool resume) {
    int64_t groups = k_count / 4;
    asm volatile(
        "cbz %w[resume], 1f\n" WEFT_MOVE_TILE(ldp) WEFT_SWAPS
        "b 2f\n"
        "1:\n" WEFT_ZEROS
        "2:\n"
        "cbz %[groups], 4f\n"
        ".p2align 5\n"
        "3:\n"  // four k
        "ldp q0, q1, [%[a]]\n"
        "ldp q2, q3, [%[a], #32]\n"
        "ldp q4, q5, [%[b]]\n"
        "ldp q6, q7, [%[b], #32]\n"

        "subs %[groups], %[groups], #1\n" WEFT_COLUMNS(8, 14, 20, 26, 4)
        "add %[a], %[a], #64\n" WEFT_COLUMNS(9, 15, 21, 27, 5)
        "ldp q4, q5, [%[b], #64]\n"
        "add %[b], %[b], #96\n" WEFT_COLUMNS(10, 16, 22, 28, 6) WEFT_COLUMNS(11, 17, 23, 29, 7)
        WEFT_COLUMNS(12, 18, 24, 30, 4) WEFT_COLUMNS(13, 19, 25, 31, 5)
        "b.ne 3b\n"
        "4:\n" WEFT_SWAPS WEFT_MOVE_TILE(stp)
        : [a] "+r"(a), [b] "+r"(b), [groups] "+r"(groups)
        : [tile] "r"(tile), [resume] "r"(static_cast<int>(resume))
        : "memory", "cc", WEFT_VECTORS);
  }
};

// clang-format on

#undef WEFT_MMLA
#undef WEFT_COLUMNS
#undef WEFT_SWAP
#undef WEFT_MOVE_ROWS
#undef WEFT_MOVE_TILE
#undef WEFT_SWAPS

}  // namespace
}  // namespace weft::WEFT_LEVEL
