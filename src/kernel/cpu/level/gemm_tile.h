// kernel/cpu/level/gemm_tile.h: which register tile this level uses for which dtype.
//
// A tile multiplies one panel of A with one of B:
//   multiply(k_count, a, b, tile, resume): tile (kMr, kNr) = [tile +] a · b
// kGroupA and kGroupB say how its panels interleave k (gemm_pack.h), kStep what k_count is a
// multiple of, kMaxK how much of k the caches hold at once. An element's chain depends on kStep
// alone: between blocks of k the sums rest in `tile` as fp32, exactly.
//
// multiply may read up to kReadPast bytes past its panels (not use them).
//
// Without an instruction for bf16 the elements become fp32 while they are packed.
#pragma once

namespace weft::WEFT_LEVEL {
inline constexpr int kReadPast = 64;
}

#if defined(WEFT_LEVEL_neon)
#include "kernel/cpu/level/gemm_tile_neon.h"
namespace weft::WEFT_LEVEL {
using TileForBf16 = FloatTile;
}
#elif defined(WEFT_LEVEL_neon_bf16)
#include "kernel/cpu/level/gemm_tile_bfmmla.h"
#include "kernel/cpu/level/gemm_tile_neon.h"
namespace weft::WEFT_LEVEL {
using TileForBf16 = Bf16Tile;
}
#endif
