// kernel/cuda/attention_dropout.h: the mask of dropout in the layout of the attention kernels.
//
// The kernels are compiled once with NoDropout and once with Dropout. The backward kernels of
// scores with a bias decide at run time (MaybeDropout); the forward one would need so many more
// registers that one block fewer fits an SM. kernel/dropout.h has the rule by which elements are
// drawn; here a thread draws those of its result (attention_tiles.h): rows r and r + 8 of a warp's
// 16, which begin at a multiple of 16, and columns 8 n + c, 8 n + c + 1.
#pragma once

#include "kernel/cuda/mma.h"
#include "kernel/dropout.h"

namespace weft::cuda {

struct NoDropout {
  __device__ __forceinline__ int head(int, int) const { return 0; }
  template <bool kRowsAreQueries, int kTiles>
  __device__ __forceinline__ uint32_t kept(int, int, int) const {
    return 0;
  }
  __device__ __forceinline__ float operator()(float value, uint32_t, int, int) const {
    return value;
  }
};

struct Dropout {
  uint64_t seed;
  int site, first_head;
  uint32_t threshold;
  float scale;
  const int64_t* rows;

  __device__ __forceinline__ DropoutKey head(int b, int h) const {
    return dropout_key(seed, site, first_head + h, rows[2 * b], rows[2 * b + 1]);
  }

  // Bit 4 n + i: c[n][i] is kept. row: the first of the thread's two; column: the first of the
  // tile.
  template <bool kRowsAreQueries, int kTiles>
  __device__ __forceinline__ uint32_t kept(const DropoutKey& key, int row, int column) const {
    static_assert(kTiles <= 8);
    if (kTiles % 2 == 0 && column % 16 == 0)
      return draw<kRowsAreQueries, kTiles, true>(key, row, column);
    return draw<kRowsAreQueries, kTiles, false>(key, row, column);
  }

  __device__ __forceinline__ float operator()(float value, uint32_t bits, int n, int i) const {
    return (bits >> (4 * n + i) & 1) != 0 ? value * scale : 0.0f;
  }

 private:
  // A block of words also decides about the columns eight further. kSquare: the tile begins with a
  // square, so both are here, and each block is drawn once.
  template <bool kRowsAreQueries, int kTiles, bool kSquare>
  __device__ __forceinline__ uint32_t draw(const DropoutKey& key, int row, int column) const {
    const uint32_t down = dropout_line(row);
    uint32_t bits = 0;
#pragma unroll
    for (int n = 0; n < kTiles; n += kSquare ? 2 : 1) {
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        const int at = column + n * 8 + lane_of_warp() % 4 * 2 + e;
        const uint32_t across = dropout_line(at);
        const PhiloxBlock words =
            kRowsAreQueries ? dropout_words(key, down, across) : dropout_words(key, across, down);
#pragma unroll
        for (int w = 0; w < 4; ++w) {
          const int low = kRowsAreQueries ? w / 2 : w % 2, right = kRowsAreQueries ? w % 2 : w / 2;
          const bool is_here = kSquare || right == at / 8 % 2;
          const int bit = 4 * (kSquare ? n + right : n) + 2 * low + e;
          if (is_here && words.word[w] >= threshold) bits |= 1u << bit;
        }
      }
    }
    return bits;
  }
};

// Dropout where there are rows to draw for. Else all is kept, times one.
struct MaybeDropout : Dropout {
  __device__ __forceinline__ DropoutKey head(int b, int h) const {
    return rows == nullptr ? DropoutKey{} : Dropout::head(b, h);
  }
  template <bool kRowsAreQueries, int kTiles>
  __device__ __forceinline__ uint32_t kept(const DropoutKey& key, int row, int column) const {
    if (rows == nullptr) return ~0u;
    return Dropout::template kept<kRowsAreQueries, kTiles>(key, row, column);
  }
};

inline Dropout dropout_of(const AttentionDropout& d) {
  return {.seed = d.seed,
          .site = static_cast<int>(d.site),
          .first_head = static_cast<int>(d.first_head),
          .threshold = dropout_threshold(d.rate),
          .scale = dropout_scale(d.rate),
          .rows = d.rate == 0 ? nullptr : d.rows};
}

// fn(NoDropout) or fn(Dropout).
template <typename Fn>
void with_dropout(const AttentionDropout& d, const Fn& fn) {
  if (d.rate == 0) return fn(NoDropout{});
  fn(dropout_of(d));
}
// The same, but fn(MaybeDropout) for a score with a bias.
template <typename Score, typename Fn>
void with_maybe_dropout(const AttentionDropout& d, const Fn& fn) {
  if constexpr (Score::kHasBias) {
    fn(MaybeDropout{dropout_of(d)});
  } else {
    with_dropout(d, fn);
  }
}

}  // namespace weft::cuda
