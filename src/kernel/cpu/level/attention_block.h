// kernel/cpu/level/attention_block.h: what the attention kernels share: the size of their blocks.
#pragma once

#include "kernel/cpu/level/block.h"
#include "kernel/cpu/level/simd_math.h"

namespace weft::WEFT_LEVEL {

inline constexpr int64_t kBlock = 64;  // queries and keys of a block: 16 KB each at D = 64

// Element (m, n), n > m, of a square block becomes `value`.
[[gnu::flatten]] inline void fill_above_diagonal(float* block, int64_t rows, float value) {
  for (int64_t m = 0; m < rows; ++m) {
    float* row = block + m * kBlock;
    for (int64_t n = (m + 1) / kLanes * kLanes; n < kBlock; n += kLanes) {
      const int kept = static_cast<int>(greater(0, m + 1 - n));
      store(row + n, fill_rest(load(row + n), value, Part{kept}));
    }
  }
}

// Channels of a head in scratch: whole tiles.
WEFT_INLINE int64_t padded(int64_t D) { return round_up(D, kTileColumns); }

}  // namespace weft::WEFT_LEVEL
