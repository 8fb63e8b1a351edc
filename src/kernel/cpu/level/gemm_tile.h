// kernel/cpu/level/gemm_tile.h: which register tile this level uses for which dtype.
//
// A tile multiplies one panel of A with one of B:
//   multiply(k_count, a, b, tile, resume): tile (kMr, kNr) = [tile +] a · b
// kGroupA and kGroupB define how its panels interleave k (gemm_pack.h), k_count is a multiple of
// kStep, kMaxK is how much of k the caches hold at once. An element's chain depends on kStep alone:
// between blocks of k the sums rest in `tile` as fp32, exactly.
//
// A tile with multiply_into stores its sums directly into C, where nothing else is added.
//
// prepare() is called by a thread before its first multiply of a task.
// multiply may read up to kReadPast bytes past its panels (not use them).
//
// Without an instruction for bf16 the elements become fp32 while they are packed.
#pragma once

#if defined(__aarch64__)
#include "kernel/cpu/level/gemm_tile_neon.h"
#elif defined(__AVX512F__)
#include "kernel/cpu/level/gemm_tile_avx512.h"
#else
#include "kernel/cpu/level/gemm_tile_avx2.h"
#endif
#if defined(WEFT_LEVEL_neon_bf16)
#include "kernel/cpu/level/gemm_tile_bfmmla.h"
#elif defined(WEFT_LEVEL_amx)
#include "kernel/cpu/level/gemm_tile_amx.h"
#endif

namespace weft::WEFT_LEVEL {
namespace {

inline constexpr int kReadPast = 64;

template <typename Tile, typename Out>
inline constexpr bool kStoresC = requires(const typename Tile::Packed* panel, Out* c) {
  Tile::multiply_into(0, panel, panel, nullptr, false, c, 0);
};

#if defined(WEFT_LEVEL_neon_bf16)
using TileForBf16 = Bf16Tile;
#elif defined(WEFT_LEVEL_amx)
using TileForBf16 = AmxTile;
#elif defined(WEFT_LEVEL_avx512_bf16)
using TileForBf16 = WideTile<Bf16Step>;
#else
using TileForBf16 = FloatTile;
#endif

}  // namespace
}  // namespace weft::WEFT_LEVEL
