// kernel/cpu/level/attention_block.h: how the attention kernels hold and mask their blocks.
#pragma once

#include "kernel/cpu/level/bfmmla_blocks.h"
#include "kernel/cpu/level/float_blocks.h"
#include "kernel/cpu/level/simd_math.h"

namespace weft::WEFT_LEVEL {

template <typename T>
struct BlocksOf {
  using Type = FloatBlocks<T>;
};
#if defined(__ARM_FEATURE_BF16_VECTOR_ARITHMETIC)
template <>
struct BlocksOf<Bf16> {
  using Type = BfmmlaBlocks;
};
#endif
template <typename T>
using Blocks = typename BlocksOf<T>::Type;

// Element (m, n), n > m + shift, of a block of scores becomes `value`.
[[gnu::flatten]] inline void fill_above_diagonal(float* block, int64_t rows, int64_t shift,
                                                 float value) {
  for (int64_t m = 0; m < rows; ++m) {
    float* row = block + m * kBlock;
    const int64_t kept = greater(0, m + shift + 1);
    for (int64_t n = kept / kLanes * kLanes; n < kBlock; n += kLanes) {
      store(row + n, fill_rest(load(row + n), value, Part{static_cast<int>(greater(0, kept - n))}));
    }
  }
}

}  // namespace weft::WEFT_LEVEL
