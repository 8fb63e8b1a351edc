// kernel/cpu/level/gemm_tile_neon.h: the fp32 tile of NEON, 8 rows by 12 columns.
//
// 24 accumulators (v8 to v31, row after row), 2 vectors of A and 3 of B for each k: 24
// multiply-adds to 5 loads keep four FMA pipes busy. In assembly, because g++ 12 keeps some of 24
// accumulators on the stack, which costs half the speed; and because loads must be placed well
// before their use: with all five at the top of the loop it reaches 92 % of the peak of a Neoverse
// V1, spread out 99 %. They run one k past the end of the panels and are dropped there.
#pragma once

#include <cstdint>

namespace weft::WEFT_LEVEL {
namespace {

// clang-format off
// One k: row r of the tile += lane r of A (v0, v1) times B (three vectors). Meanwhile the loads
// load0 to load4 fetch the next k: B first, each vector of A when its last lane has been used.
#define WEFT_FMA(acc, b, a) "fmla v" #acc ".4s, v" #b ".4s, v" #a "\n"
#define WEFT_ROW(c0, c1, c2, b0, b1, b2, a) \
  WEFT_FMA(c0, b0, a) WEFT_FMA(c1, b1, a) WEFT_FMA(c2, b2, a)
#define WEFT_RANK1(b0, b1, b2, load0, load1, load2, load3, load4)                     \
  WEFT_ROW(8, 9, 10, b0, b1, b2, 0.s[0]) load0                                        \
  WEFT_ROW(11, 12, 13, b0, b1, b2, 0.s[1]) load1                                      \
  WEFT_ROW(14, 15, 16, b0, b1, b2, 0.s[2]) load2                                      \
  WEFT_ROW(17, 18, 19, b0, b1, b2, 0.s[3]) load3                                      \
  WEFT_ROW(20, 21, 22, b0, b1, b2, 1.s[0]) WEFT_ROW(23, 24, 25, b0, b1, b2, 1.s[1])   \
  WEFT_ROW(26, 27, 28, b0, b1, b2, 1.s[2]) WEFT_ROW(29, 30, 31, b0, b1, b2, 1.s[3]) load4
#define WEFT_LOAD(to, from, at) "ldr q" #to ", [%[" #from "], #" #at "]\n"
// All accumulators from or to the tile: ldp or stp.
#define WEFT_PAIR(op, c0, c1, at) #op " q" #c0 ", q" #c1 ", [%[tile], #" #at "]\n"
#define WEFT_TILE(op)                                                                       \
  WEFT_PAIR(op, 8, 9, 0) WEFT_PAIR(op, 10, 11, 32) WEFT_PAIR(op, 12, 13, 64)                \
  WEFT_PAIR(op, 14, 15, 96) WEFT_PAIR(op, 16, 17, 128) WEFT_PAIR(op, 18, 19, 160)           \
  WEFT_PAIR(op, 20, 21, 192) WEFT_PAIR(op, 22, 23, 224) WEFT_PAIR(op, 24, 25, 256)          \
  WEFT_PAIR(op, 26, 27, 288) WEFT_PAIR(op, 28, 29, 320) WEFT_PAIR(op, 30, 31, 352)
#define WEFT_ZERO(c) "movi v" #c ".16b, #0\n"
#define WEFT_ZEROS                                                                           \
  WEFT_ZERO(8) WEFT_ZERO(9) WEFT_ZERO(10) WEFT_ZERO(11) WEFT_ZERO(12) WEFT_ZERO(13)          \
  WEFT_ZERO(14) WEFT_ZERO(15) WEFT_ZERO(16) WEFT_ZERO(17) WEFT_ZERO(18) WEFT_ZERO(19)        \
  WEFT_ZERO(20) WEFT_ZERO(21) WEFT_ZERO(22) WEFT_ZERO(23) WEFT_ZERO(24) WEFT_ZERO(25)        \
  WEFT_ZERO(26) WEFT_ZERO(27) WEFT_ZERO(28) WEFT_ZERO(29) WEFT_ZERO(30) WEFT_ZERO(31)
#define WEFT_VECTORS                                                                            \
  "v0", "v1", "v2", "v3", "v4", "v5", "v6", "v7", "v8", "v9", "v10", "v11", "v12", "v13",       \
      "v14", "v15", "v16", "v17", "v18", "v19", "v20", "v21", "v22", "v23", "v24", "v25",       \
      "v26", "v27", "v28", "v29", "v30", "v31"

struct FloatTile {
  using Packed = float;
  static constexpr int kMr = 8, kNr = 12, kGroupA = 1, kGroupB = 1, kStep = 1;
  static constexpr int64_t kMaxK = 512;  // panels of 16 and 24 KiB: the L1 cache has 64

  static void prepare() {}

  static void multiply(int64_t k_count, const float* a, const float* b, float* tile, bool resume) {
    int64_t pairs = k_count / 2;
    asm volatile(
        "cbz %w[resume], 1f\n" WEFT_TILE(ldp)
        "b 2f\n"
        "1:\n" WEFT_ZEROS
        "2:\n"
        "ldp q0, q1, [%[a]]\n"
        "ldp q2, q3, [%[b]]\n"
        "ldr q4, [%[b], #32]\n"
        "cbz %[pairs], 4f\n"
        ".p2align 5\n"
        "3:\n"  // two k
        WEFT_RANK1(2, 3, 4, WEFT_LOAD(5, b, 48), WEFT_LOAD(6, b, 64), WEFT_LOAD(7, b, 80),
                   WEFT_LOAD(0, a, 32), WEFT_LOAD(1, a, 48))
        "subs %[pairs], %[pairs], #1\n"
        WEFT_RANK1(5, 6, 7, WEFT_LOAD(2, b, 96), WEFT_LOAD(3, b, 112), WEFT_LOAD(4, b, 128),
                   WEFT_LOAD(0, a, 64), WEFT_LOAD(1, a, 80))
        "add %[a], %[a], #64\n"
        "add %[b], %[b], #96\n"
        "b.ne 3b\n"
        "4:\n"
        "cbz %w[odd], 5f\n" WEFT_RANK1(2, 3, 4, , , , , )
        "5:\n" WEFT_TILE(stp)
        : [a] "+r"(a), [b] "+r"(b), [pairs] "+r"(pairs)
        : [tile] "r"(tile), [resume] "r"(static_cast<int>(resume)),
          [odd] "r"(static_cast<int>(k_count & 1))
        : "memory", "cc", WEFT_VECTORS);
  }
};

// clang-format on

#undef WEFT_FMA
#undef WEFT_ROW
#undef WEFT_RANK1
#undef WEFT_LOAD

}  // namespace
}  // namespace weft::WEFT_LEVEL
