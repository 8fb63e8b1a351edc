// kernel/cpu/level/asm_neon.h: pieces of the assembly of ARM's register tiles.
//
// A tile has 8 rows by 12 columns: 24 sums in v8 to v31, row after row (fp32). v0 to v7 hold
// factors.
#pragma once

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

// A row of twelve sums into C.
#define WEFT_STORE_FLOATS(c0, c1, c2) \
  "stp q" #c0 ", q" #c1 ", [%[c]]\n" "str q" #c2 ", [%[c], #32]\n" "add %[c], %[c], %[ldc]\n"
// clang-format on
