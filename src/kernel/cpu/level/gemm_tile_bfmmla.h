// kernel/cpu/level/gemm_tile_bfmmla.h: the bf16 tile of ARM's BFMMLA, 8 rows by 12 columns.
//
// One instruction multiplies 2 rows by 4 k with 4 k by 2 columns into a 2 by 2 block, so an
// accumulator holds {c00, c01, c10, c11}. 24 of them (v8 to v31, six to a pair of rows), 4 vectors
// of A and 6 of B for 4 k: 24 instructions to 10 loads into the 8 registers that are left.
//
// The order of the instructions is worth 10 % of the speed (docs/kernels/gemm.md): a register must
// be free well before its next value is used. So the outer column pairs go row by row, which frees
// A's registers one after another, and loads are placed right after a register's last use. They run
// four k past the end of the panels and are dropped there.
#pragma once

#include <cstdint>

#include "kernel/cpu/level/gemm_tile_neon.h"
#include "tensor/dtype.h"

namespace weft::WEFT_LEVEL {
namespace {

// clang-format off
#define WEFT_MMLA(acc, a, b) "bfmmla v" #acc ".4s, v" #a ".8h, v" #b ".8h\n"
#define WEFT_LOAD(to, from, at) "ldr q" #to ", [%[" #from "], #" #at "]\n"
// Two accumulators that share a pair of rows, a times two vectors of B.
#define WEFT_BOTH(c0, c1, a, b0, b1) WEFT_MMLA(c0, a, b0) WEFT_MMLA(c1, a, b1)
// Four k: B's six vectors come through b0 b1, b2 b3 and b0 b1 again. last0 and last1 load the third
// pair, the others the next four k, whose first pair are b2 b3.
#define WEFT_FOUR_K(b0, b1, b2, b3, last0, last1, load2, load3, load_a0, load_a1, load_a2, load_a3, \
                    load0, load1)                                                                  \
  WEFT_BOTH(8, 9, 0, b0, b1) WEFT_BOTH(14, 15, 1, b0, b1)                                          \
  WEFT_BOTH(20, 21, 2, b0, b1) WEFT_BOTH(26, 27, 3, b0, b1) last1                                  \
  WEFT_MMLA(10, 0, b2) last0 WEFT_MMLA(16, 1, b2) WEFT_MMLA(22, 2, b2) WEFT_MMLA(28, 3, b2)        \
  WEFT_MMLA(11, 0, b3) WEFT_MMLA(17, 1, b3) WEFT_MMLA(23, 2, b3) load2 WEFT_MMLA(29, 3, b3) load3  \
  WEFT_BOTH(12, 13, 0, b0, b1) load_a0 WEFT_BOTH(18, 19, 1, b0, b1) load_a1                        \
  WEFT_BOTH(24, 25, 2, b0, b1) WEFT_MMLA(30, 3, b0) load_a2 WEFT_MMLA(31, 3, b1) load_a3 load0 load1
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

// From the sums so far, or zero, to those over all k, as 2 x 2 blocks.
#define WEFT_SUM_UP \
  "cbz %w[resume], 1f\n" WEFT_MOVE_TILE(ldp) WEFT_SWAPS                                            \
  "b 2f\n"                                                                                         \
  "1:\n" WEFT_ZEROS                                                                                \
  "2:\n"                                                                                           \
  "ldp q0, q1, [%[a]]\n"                                                                           \
  "ldp q4, q5, [%[b]]\n"                                                                           \
  "ldp q2, q3, [%[a], #32]\n"                                                                      \
  "ldp q6, q7, [%[b], #32]\n"                                                                      \
  "cbz %[pairs], 4f\n"                                                                             \
  ".p2align 5\n"                                                                                   \
  "3:\n"                                                                                           \
  WEFT_FOUR_K(4, 5, 6, 7, WEFT_LOAD(4, b, 64), WEFT_LOAD(5, b, 80), WEFT_LOAD(6, b, 96),           \
              WEFT_LOAD(7, b, 112), WEFT_LOAD(0, a, 64), WEFT_LOAD(1, a, 80),                      \
              WEFT_LOAD(2, a, 96), WEFT_LOAD(3, a, 112), WEFT_LOAD(4, b, 128),                     \
              WEFT_LOAD(5, b, 144))                                                                \
  "subs %[pairs], %[pairs], #1\n"                                                                  \
  WEFT_FOUR_K(6, 7, 4, 5, WEFT_LOAD(6, b, 160), WEFT_LOAD(7, b, 176), WEFT_LOAD(4, b, 192),        \
              WEFT_LOAD(5, b, 208), WEFT_LOAD(0, a, 128), WEFT_LOAD(1, a, 144),                    \
              WEFT_LOAD(2, a, 160), WEFT_LOAD(3, a, 176), WEFT_LOAD(6, b, 224),                    \
              WEFT_LOAD(7, b, 240))                                                                \
  "add %[a], %[a], #128\n"                                                                         \
  "add %[b], %[b], #192\n"                                                                         \
  "b.ne 3b\n"                                                                                      \
  "4:\n"                                                                                           \
  "cbz %w[odd], 5f\n"                                                                              \
  WEFT_FOUR_K(4, 5, 6, 7, WEFT_LOAD(4, b, 64), WEFT_LOAD(5, b, 80), , , , , , , , )                \
  "5:\n"
// A pair of rows from its six blocks, rounded: in v0 to v2 the words of both rows alternate.
#define WEFT_ROUND(to, c0, c1) \
  "bfcvtn v" #to ".4h, v" #c0 ".4s\n" "bfcvtn2 v" #to ".8h, v" #c1 ".4s\n"
#define WEFT_STORE_ROW(uzp) \
  #uzp " v3.4s, v0.4s, v1.4s\n" #uzp " v4.4s, v2.4s, v2.4s\n" \
  "str q3, [%[c]]\n" "str d4, [%[c], #16]\n" "add %[c], %[c], %[ldc]\n"
#define WEFT_STORE_PAIR(c0, c1, c2, c3, c4, c5) \
  WEFT_ROUND(0, c0, c1) WEFT_ROUND(1, c2, c3) WEFT_ROUND(2, c4, c5) \
  WEFT_STORE_ROW(uzp1) WEFT_STORE_ROW(uzp2)

struct Bf16Tile {
  using Packed = Bf16;
  static constexpr int kMr = 8, kNr = 12, kGroupA = 4, kGroupB = 4, kStep = 4;
  static constexpr int64_t kMaxK = 1024;  // panels of 16 and 24 KiB: the L1 cache has 64

  static void prepare() {}

  static void multiply(int64_t k_count, const Bf16* a, const Bf16* b, float* tile, bool resume) {
    int64_t pairs = k_count / 8;
    asm volatile(WEFT_SUM_UP WEFT_SWAPS WEFT_MOVE_TILE(stp)
                 : [a] "+&r"(a), [b] "+&r"(b), [pairs] "+&r"(pairs)
                 : [tile] "r"(tile), [resume] "r"(static_cast<int>(resume)),
                   [odd] "r"(static_cast<int>(k_count & 4))
                 : "memory", "cc", WEFT_VECTORS);
  }

  // The same into rows of C that are ldc elements apart; `tile` is only read.
  static void multiply_into(int64_t k_count, const Bf16* a, const Bf16* b, const float* tile,
                            bool resume, float* c, int64_t ldc) {
    int64_t pairs = k_count / 8;
    asm volatile(WEFT_SUM_UP WEFT_SWAPS
                 WEFT_STORE_FLOATS(8, 10, 12) WEFT_STORE_FLOATS(9, 11, 13)
                 WEFT_STORE_FLOATS(14, 16, 18) WEFT_STORE_FLOATS(15, 17, 19)
                 WEFT_STORE_FLOATS(20, 22, 24) WEFT_STORE_FLOATS(21, 23, 25)
                 WEFT_STORE_FLOATS(26, 28, 30) WEFT_STORE_FLOATS(27, 29, 31)
                 : [a] "+&r"(a), [b] "+&r"(b), [pairs] "+&r"(pairs), [c] "+&r"(c)
                 : [tile] "r"(tile), [resume] "r"(static_cast<int>(resume)),
                   [odd] "r"(static_cast<int>(k_count & 4)), [ldc] "r"(4 * ldc)
                 : "memory", "cc", WEFT_VECTORS);
  }
  // The same, rounded.
  static void multiply_into(int64_t k_count, const Bf16* a, const Bf16* b, const float* tile,
                            bool resume, Bf16* c, int64_t ldc) {
    int64_t pairs = k_count / 8;
    asm volatile(WEFT_SUM_UP WEFT_STORE_PAIR(8, 9, 10, 11, 12, 13)
                     WEFT_STORE_PAIR(14, 15, 16, 17, 18, 19) WEFT_STORE_PAIR(20, 21, 22, 23, 24, 25)
                         WEFT_STORE_PAIR(26, 27, 28, 29, 30, 31)
                 : [a] "+&r"(a), [b] "+&r"(b), [pairs] "+&r"(pairs), [c] "+&r"(c)
                 : [tile] "r"(tile), [resume] "r"(static_cast<int>(resume)),
                   [odd] "r"(static_cast<int>(k_count & 4)), [ldc] "r"(2 * ldc)
                 : "memory", "cc", WEFT_VECTORS);
  }
};

// clang-format on

#undef WEFT_MMLA
#undef WEFT_LOAD
#undef WEFT_BOTH
#undef WEFT_FOUR_K
#undef WEFT_SWAP
#undef WEFT_MOVE_ROWS
#undef WEFT_MOVE_TILE
#undef WEFT_SWAPS
#undef WEFT_SUM_UP
#undef WEFT_ROUND
#undef WEFT_STORE_ROW
#undef WEFT_STORE_PAIR

}  // namespace
}  // namespace weft::WEFT_LEVEL
