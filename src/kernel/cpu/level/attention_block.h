// kernel/cpu/level/attention_block.h: how the attention kernels hold their blocks and find
// segments.
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

// The segment of a packed row that position t is in. `positions`: of the row, from 0 in each
// segment; null: the row is one.
WEFT_INLINE int64_t segment_begin(const int32_t* positions, int64_t t) {
  return positions ? t - positions[t] : 0;
}
WEFT_INLINE int64_t segment_end(const int32_t* positions, int64_t t, int64_t length) {
  if (!positions) return length;
  for (++t; t < length && positions[t] != 0;) ++t;
  return t;
}

}  // namespace weft::WEFT_LEVEL
