// kernel/cuda/attention_drawn.h: the mask of dropout for the kernels of attention_tensor.h.
//
// It is drawn before them (attention_drawn.cu), a bit per pair, since draws in between would leave
// the tensor cores waiting. Sixteen queries by 32 keys are 64 bytes: byte 2 l + s holds what lane l
// needs whose rows are the queries, of square s of 16 keys: bit 4 e + 2 q + k of c[2 s + k][2 q +
// e] (attention_tiles.h). Where rows are keys a lane's bits are nibbles of four bytes. Tiles that
// do not begin with a square (of segments), and all where the mask is too large, are drawn in
// place.
#pragma once

#include "kernel/cuda/attention_dropout.h"
#include "kernel/cuda/mma.h"

namespace weft::cuda {

// Bit of c[n][i].
template <bool kRowsAreQueries>
__device__ __forceinline__ constexpr int drawn_bit(int n, int i) {
  const int low = i / 2, right = n % 2;
  return n / 2 * 8 + i % 2 * 4 + (kRowsAreQueries ? 2 * low + right : 2 * right + low);
}

template <int kTiles, typename Fn>
__device__ __forceinline__ void keep_all(const Fn& fn) {
#pragma unroll
  for (int n = 0; n < kTiles; ++n) {
#pragma unroll
    for (int i = 0; i < 4; ++i) fn(n, i, true, 1.0f);
  }
}

// A tile's bits as they were loaded, so that nothing waits for them before they are used: all in
// the first, or where rows are keys in nibbles of all.
struct TileBits {
  uint32_t parts[4];
};

struct NothingDrawn {
  __device__ __forceinline__ const uint8_t* head(int, int) const { return nullptr; }
  template <bool kRowsAreQueries, int kTiles>
  __device__ __forceinline__ TileBits bits(const uint8_t*, int, int, int, int) const {
    return {};
  }
  // fn(n, i, whether it is kept, times what) for every c[n][i] of a tile (16, 8 kTiles).
  template <bool kRowsAreQueries, int kTiles, typename Fn>
  __device__ __forceinline__ void each(const TileBits&, const Fn& fn) const {
    keep_all<kTiles>(fn);
  }
};

struct Drawn {
  Dropout dropout;
  const uint8_t* mask;  // null: all is drawn in place
  int64_t head_bytes;
  int num_heads, units;  // units: of 32 keys

  __device__ __forceinline__ const uint8_t* head(int b, int h) const {
    return mask == nullptr ? nullptr : mask + (int64_t{b} * num_heads + h) * head_bytes;
  }

  // of: head(b, h); row: the first of the thread's two; column: the first of the tile.
  template <bool kRowsAreQueries, int kTiles>
  __device__ __forceinline__ TileBits bits(const uint8_t* of, int b, int h, int row,
                                           int column) const {
    static_assert(kTiles == 4 || (kTiles == 8 && kRowsAreQueries));
    if (of == nullptr || column % 32 != 0)
      return draw<kRowsAreQueries, kTiles>(dropout.head(b, h), row, column);
    const int lane = lane_of_warp();
    TileBits all = {};
    if constexpr (kRowsAreQueries) {
      const uint8_t* at = of + (int64_t{row / 16} * units + column / 32) * 64 + lane * 2;
      all.parts[0] = *reinterpret_cast<const uint16_t*>(at);
      if constexpr (kTiles == 8) all.parts[1] = *reinterpret_cast<const uint16_t*>(at + 64);
    } else {
      // Queries 2 c + e of two squares; key line r.
      const int r = lane / 4, c = lane % 4;
      const uint8_t* at = of + (int64_t{column / 16} * units + row / 32) * 64 +
                          (2 * c * 4 + r / 2) * 2 + row / 16 % 2;
#pragma unroll
      for (int part = 0; part < 4; ++part) {
        all.parts[part] = at[part / 2 * units * 64 + part % 2 * 8];
      }
    }
    return all;
  }

  template <bool kRowsAreQueries, int kTiles, typename Fn>
  __device__ __forceinline__ void each(const TileBits& bits, const Fn& fn) const {
    uint32_t all = bits.parts[0] | bits.parts[1] << 16;
    if constexpr (!kRowsAreQueries) {
      const int nibble = lane_of_warp() / 4 % 2 * 4;
      all = 0;
#pragma unroll
      for (int part = 0; part < 4; ++part) {
        all |= (bits.parts[part] >> nibble & 15u) << part * 4;
      }
    }
#pragma unroll
    for (int n = 0; n < kTiles; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        fn(n, i, (all & 1u << drawn_bit<kRowsAreQueries>(n, i)) != 0, dropout.scale);
      }
    }
  }

 private:
  template <bool kRowsAreQueries, int kTiles>
  __device__ TileBits draw(const DropoutKey& key, int row, int column) const {
    const uint32_t down = dropout_line(row);
    uint32_t all = 0;
#pragma unroll 1
    for (int n = 0; n < kTiles; ++n) {
#pragma unroll 1
      for (int e = 0; e < 2; ++e) {
        const int at = column + n * 8 + lane_of_warp() % 4 * 2 + e;
        const uint32_t across = dropout_line(at);
        const PhiloxBlock words =
            kRowsAreQueries ? dropout_words(key, down, across) : dropout_words(key, across, down);
        const bool is_later = at / 8 % 2 != 0;
#pragma unroll
        for (int low = 0; low < 2; ++low) {
          const uint32_t word = kRowsAreQueries
                                    ? (is_later ? words.word[2 * low + 1] : words.word[2 * low])
                                    : (is_later ? words.word[2 + low] : words.word[low]);
          if (word >= dropout.threshold) all |= 1u << drawn_bit<kRowsAreQueries>(n, 2 * low + e);
        }
      }
    }
    if constexpr (kRowsAreQueries) return {{all & 0xffff, all >> 16, 0, 0}};
    TileBits bits = {};  // as they are read: in the nibble that this lane takes
#pragma unroll
    for (int part = 0; part < 4; ++part) {
      bits.parts[part] = (all >> part * 4 & 15u) << lane_of_warp() / 4 % 2 * 4;
    }
    return bits;
  }
};

// The same where there is dropout; else all is kept.
struct MaybeDrawn : Drawn {
  template <bool kRowsAreQueries, int kTiles>
  __device__ __forceinline__ TileBits bits(const uint8_t* of, int b, int h, int row,
                                           int column) const {
    return dropout.rows == nullptr
               ? TileBits{}
               : Drawn::template bits<kRowsAreQueries, kTiles>(of, b, h, row, column);
  }
  template <bool kRowsAreQueries, int kTiles, typename Fn>
  __device__ __forceinline__ void each(const TileBits& bits, const Fn& fn) const {
    if (dropout.rows == nullptr) return keep_all<kTiles>(fn);
    Drawn::template each<kRowsAreQueries, kTiles>(bits, fn);
  }
};

// attention_drawn.cu. Bytes of the mask; 0 where there is none.
size_t drawn_bytes(const AttentionOperands&);
// Draws it into `mask`, of drawn_bytes.
Drawn draw_mask(const Context&, const AttentionOperands&, std::byte* mask);
// How it is read; no kernel is started.
Drawn drawn_mask(const AttentionOperands&, const std::byte* mask);

// fn(NothingDrawn) or fn(Drawn); with a bias fn(MaybeDrawn) where kMaybe.
template <typename Score, bool kMaybe, typename Fn>
void with_drawn(const AttentionOperands& args, const Drawn& drawn, const Fn& fn) {
  if constexpr (Score::kHasBias && kMaybe) {
    fn(MaybeDrawn{drawn});
  } else {
    if (args.dropout.rate == 0) return fn(NothingDrawn{});
    fn(drawn);
  }
}

}  // namespace weft::cuda
