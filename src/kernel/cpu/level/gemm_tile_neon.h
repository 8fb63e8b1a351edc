// kernel/cpu/level/gemm_tile_neon.h: the fp32 tile of NEON, 8 rows by 12 columns.
//
// 24 accumulators (v8 to v31, row after row), 2 vectors of A and 3 of B for each k: 24
// multiply-adds to 5 loads keep four FMA pipes busy. In assembly, because g++ 12 keeps some of 24
// accumulators on the stack, which costs half the speed; and because loads must be placed well
// before their use: with all five at the top of the loop it reaches 92 % of the peak of a Neoverse
// V1, spread out 99 %. They run one k past the end of the panels and are dropped there.
#pragma once

#include <cstdint>

#include "kernel/cpu/level/asm_neon.h"

namespace weft::WEFT_LEVEL {
namespace {

// clang-format off
#define WEFT_LOAD(to, from, at) "ldr q" #to ", [%[" #from "], #" #at "]\n"
// All accumulators from or to the tile: ldp or stp.
#define WEFT_PAIR(op, c0, c1, at) #op " q" #c0 ", q" #c1 ", [%[tile], #" #at "]\n"
#define WEFT_TILE(op)                                                                       \
  WEFT_PAIR(op, 8, 9, 0) WEFT_PAIR(op, 10, 11, 32) WEFT_PAIR(op, 12, 13, 64)                \
  WEFT_PAIR(op, 14, 15, 96) WEFT_PAIR(op, 16, 17, 128) WEFT_PAIR(op, 18, 19, 160)           \
  WEFT_PAIR(op, 20, 21, 192) WEFT_PAIR(op, 22, 23, 224) WEFT_PAIR(op, 24, 25, 256)          \
  WEFT_PAIR(op, 26, 27, 288) WEFT_PAIR(op, 28, 29, 320) WEFT_PAIR(op, 30, 31, 352)
// From the sums so far, or zero, to those over all k.
#define WEFT_SUM_UP_FLOATS                                                                    \
  "cbz %w[resume], 1f\n" WEFT_TILE(ldp)                                                       \
  "b 2f\n"                                                                                    \
  "1:\n" WEFT_ZEROS                                                                           \
  "2:\n"                                                                                      \
  "ldp q0, q1, [%[a]]\n"                                                                      \
  "ldp q2, q3, [%[b]]\n"                                                                      \
  "ldr q4, [%[b], #32]\n"                                                                     \
  "cbz %[pairs], 4f\n"                                                                        \
  ".p2align 5\n"                                                                              \
  "3:\n" /* two k */                                                                          \
  WEFT_RANK1(2, 3, 4, WEFT_LOAD(5, b, 48), WEFT_LOAD(6, b, 64), WEFT_LOAD(7, b, 80),          \
             WEFT_LOAD(0, a, 32), WEFT_LOAD(1, a, 48))                                        \
  "subs %[pairs], %[pairs], #1\n"                                                             \
  WEFT_RANK1(5, 6, 7, WEFT_LOAD(2, b, 96), WEFT_LOAD(3, b, 112), WEFT_LOAD(4, b, 128),        \
             WEFT_LOAD(0, a, 64), WEFT_LOAD(1, a, 80))                                        \
  "add %[a], %[a], #64\n"                                                                     \
  "add %[b], %[b], #96\n"                                                                     \
  "b.ne 3b\n"                                                                                 \
  "4:\n"                                                                                      \
  "cbz %w[odd], 5f\n" WEFT_RANK1(2, 3, 4, , , , , )                                           \
  "5:\n"

struct FloatTile {
  using Packed = float;
  static constexpr int kMr = 8, kNr = 12, kGroupA = 1, kGroupB = 1, kStep = 1;
  static constexpr int64_t kMaxK = 512;  // panels of 16 and 24 KiB: the L1 cache has 64

  static void prepare() {}

  static void multiply(int64_t k_count, const float* a, const float* b, float* tile, bool resume) {
    int64_t pairs = k_count / 2;
    asm volatile(WEFT_SUM_UP_FLOATS WEFT_TILE(stp)
                 : [a] "+r"(a), [b] "+r"(b), [pairs] "+r"(pairs)
                 : [tile] "r"(tile), [resume] "r"(static_cast<int>(resume)),
                   [odd] "r"(static_cast<int>(k_count & 1))
                 : "memory", "cc", WEFT_VECTORS);
  }

  // The same into rows of C that are ldc elements apart; `tile` is only read.
  static void multiply_into(int64_t k_count, const float* a, const float* b, const float* tile,
                            bool resume, float* c, int64_t ldc) {
    int64_t pairs = k_count / 2;
    asm volatile(WEFT_SUM_UP_FLOATS WEFT_STORE_FLOATS(8, 9, 10) WEFT_STORE_FLOATS(11, 12, 13)
                     WEFT_STORE_FLOATS(14, 15, 16) WEFT_STORE_FLOATS(17, 18, 19)
                         WEFT_STORE_FLOATS(20, 21, 22) WEFT_STORE_FLOATS(23, 24, 25)
                             WEFT_STORE_FLOATS(26, 27, 28) WEFT_STORE_FLOATS(29, 30, 31)
                 : [a] "+&r"(a), [b] "+&r"(b), [pairs] "+&r"(pairs), [c] "+&r"(c)
                 : [tile] "r"(tile), [resume] "r"(static_cast<int>(resume)),
                   [odd] "r"(static_cast<int>(k_count & 1)), [ldc] "r"(4 * ldc)
                 : "memory", "cc", WEFT_VECTORS);
  }
};

// clang-format on

#undef WEFT_LOAD
#undef WEFT_SUM_UP_FLOATS

}  // namespace
}  // namespace weft::WEFT_LEVEL
