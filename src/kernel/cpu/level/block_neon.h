// kernel/cpu/level/block_neon.h: ARM's tiles of attention's blocks, 8 rows by 12 columns.
//
// In assembly for the reason given in gemm_tile_neon.h. Unlike a product's panels the operands are
// blocks with strides, and the chains begin with what C holds: nothing, C, or C times the scale of
// its row. Nothing is read past the operands.
#pragma once

#include "kernel/cpu/level/asm_neon.h"
#include "kernel/cpu/level/simd.h"

namespace weft::WEFT_LEVEL {

// What a product does with the existing C.
enum class Old {
  kReplace,
  kAdd,
  kScaleAndAdd
};  // the last: row m of C is multiplied with scale[m]

#if defined(__aarch64__)

// clang-format off
#define WEFT_OLD(c0, c1, c2) \
  "ldp q" #c0 ", q" #c1 ", [%[old]]\n" "ldr q" #c2 ", [%[old], #32]\n" "add %[old], %[old], %[ldc]\n"
#define WEFT_SCALED(c0, c1, c2) \
  WEFT_OLD(c0, c1, c2) "ld1r {v0.4s}, [%[scale]], #4\n" \
  "fmul v" #c0 ".4s, v" #c0 ".4s, v0.4s\n" "fmul v" #c1 ".4s, v" #c1 ".4s, v0.4s\n" \
  "fmul v" #c2 ".4s, v" #c2 ".4s, v0.4s\n"
#define WEFT_EACH_ROW(op)                                                                     \
  op(8, 9, 10) op(11, 12, 13) op(14, 15, 16) op(17, 18, 19) op(20, 21, 22) op(23, 24, 25)     \
  op(26, 27, 28) op(29, 30, 31)
#define WEFT_LOAD(to, from, at) "ldr q" #to ", [%[" #from "], #" #at "]\n"
#define WEFT_LOADS(b0, b1, b2)                                                                \
  WEFT_LOAD(b0, b, 0), WEFT_LOAD(b1, b, 16), WEFT_LOAD(b2, b, 32), WEFT_LOAD(0, a, 0),        \
  WEFT_LOAD(1, a, 16)
#define WEFT_NEXT_K "add %[a], %[a], %[lda]\n" "add %[b], %[b], %[ldb]\n"
#define WEFT_RANK1_OF(...) WEFT_RANK1(__VA_ARGS__)
#define WEFT_FLOAT_TILE(begin)                                                                \
  asm volatile(begin                                                                          \
      WEFT_LOAD(0, a, 0) WEFT_LOAD(1, a, 16)                                                  \
      WEFT_LOAD(2, b, 0) WEFT_LOAD(3, b, 16) WEFT_LOAD(4, b, 32)                              \
      "cbz %[pairs], 2f\n"                                                                    \
      ".p2align 5\n"                                                                          \
      "1:\n"                                                                                  \
      WEFT_NEXT_K WEFT_RANK1_OF(2, 3, 4, WEFT_LOADS(5, 6, 7))                                 \
      "subs %[pairs], %[pairs], #1\n"                                                         \
      WEFT_NEXT_K WEFT_RANK1_OF(5, 6, 7, WEFT_LOADS(2, 3, 4))                                 \
      "b.ne 1b\n"                                                                             \
      "2:\n"                                                                                  \
      WEFT_NEXT_K WEFT_RANK1_OF(2, 3, 4, WEFT_LOADS(5, 6, 7)) WEFT_RANK1(5, 6, 7, , , , , )   \
      WEFT_EACH_ROW(WEFT_STORE_FLOATS)                                                        \
      : [a] "+&r"(a), [b] "+&r"(b), [pairs] "+&r"(pairs), [c] "+&r"(c), [old] "+&r"(old),     \
        [scale] "+&r"(scale)                                                                  \
      : [lda] "r"(4 * lda), [ldb] "r"(4 * ldb), [ldc] "r"(4 * ldc)                            \
      : "memory", "cc", WEFT_VECTORS)
// clang-format on

// C (8, 12) = [C +] A · B for A stored as (K, 8) and B (K, 12); K is even and not zero.
template <Old kOld>
WEFT_INLINE void multiply_8x12(int64_t K, const float* a, int64_t lda, const float* b, int64_t ldb,
                               float* c, int64_t ldc, const float* scale) {
  int64_t pairs = K / 2 - 1;
  const float* old = c;
  if constexpr (kOld == Old::kReplace) {
    WEFT_FLOAT_TILE(WEFT_ZEROS);
  } else if constexpr (kOld == Old::kAdd) {
    WEFT_FLOAT_TILE(WEFT_EACH_ROW(WEFT_OLD));
  } else {
    WEFT_FLOAT_TILE(WEFT_EACH_ROW(WEFT_SCALED));
  }
}

#undef WEFT_FLOAT_TILE
#undef WEFT_LOADS
#undef WEFT_NEXT_K
#undef WEFT_RANK1_OF
#undef WEFT_EACH_ROW

#undef WEFT_OLD
#undef WEFT_SCALED
#undef WEFT_LOAD

#endif

}  // namespace weft::WEFT_LEVEL
