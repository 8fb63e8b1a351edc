// kernel/cpu/level/attention_block.h: what the attention kernels share: the size of their blocks.
#pragma once

#include "kernel/cpu/level/block.h"
#include "kernel/cpu/level/simd_math.h"

namespace weft::WEFT_LEVEL {

inline constexpr int64_t kBlock = 64;  // queries and keys of a block: 16 KB each at D = 64

// Channels of a head in scratch: whole tiles.
WEFT_INLINE int64_t padded(int64_t D) { return round_up(D, kTileColumns); }

}  // namespace weft::WEFT_LEVEL
