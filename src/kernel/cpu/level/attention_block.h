// kernel/cpu/level/attention_block.h: how the attention kernels hold their blocks.
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

}  // namespace weft::WEFT_LEVEL
