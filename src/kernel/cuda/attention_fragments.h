// kernel/cuda/attention_fragments.h: tiles of 16-bit heads for kernels whose own rows are in
// registers.
//
// A tile is rows of kD elements in shared memory without gaps. Chunk c (8 elements, 16 bytes) of
// row r is at place c ^ mix(r), so that the chunks c of eight rows lie in different banks. Copies
// are asynchronous. With kSplit a tile has that many rows, which are divided into pieces of 64
// columns, one piece of all rows after the other. A warp keeps the fragments of its own 16 rows
// (mma.h) in registers, and weights become fragments without leaving them: two tiles of a result
// are one fragment of its rows.
#pragma once

#include "kernel/cuda/async_copy.h"
#include "kernel/cuda/attention_tiles.h"

namespace weft::cuda {

template <int kD, int kSplit>
struct Mix {
  static_assert(kD % 64 == 0 || kD == 96);
  static constexpr bool kIsWide = kD % 64 == 0 || kSplit > 0;
  // Rows of 192 bytes begin in two banks alone, and 12 chunks are mixed within fours.
  static constexpr int kPairs = kIsWide ? 4 : 2;     // of chunks that are mixed with each other
  static constexpr int kRow = kSplit > 0 ? 64 : kD;  // elements from one row to the next
  // Bytes from kPairs pairs to the next.
  static constexpr int kNext = kSplit > 0 ? kSplit* kRow * 2 : kPairs * 32;
  __device__ __forceinline__ static int of(int row) { return kIsWide ? row % 8 : row / 2 % 4; }
};
template <int kD, int kSplit>
inline constexpr int kTileColumns = kSplit > 0 ? (kD + 63) / 64 * 64 : kD;  // with unused ones
template <int kD, int kSplit>
__device__ __forceinline__ int place_in_tile(int row, int chunk) {
  if constexpr (kSplit > 0) {
    return (chunk / 8 * kSplit + row) * 64 + (chunk % 8 ^ row % 8) * 8;
  } else {
    return row * kD + (chunk ^ Mix<kD, 0>::of(row)) * 8;
  }
}

// Where a lane reads in a tile that begins at byte `tile` of the block's shared memory `shared`, a
// multiple of 128: row `row` (any multiple of 16 may be added), chunk 2 pair + half. All pairs are
// found from one number.
template <int kD, int kSplit = 0>
struct LaneReads {
  int first;  // bytes: of pair 0
  __device__ __forceinline__ LaneReads(int tile, int row, int half)
      : first(tile + place_in_tile<kD, kSplit>(row, half) * 2) {}
  template <typename Value>
  __device__ __forceinline__ const Value* at(const Value* shared, int pair, int row) const {
    using M = Mix<kD, kSplit>;
    const int bytes =
        (first ^ pair % M::kPairs * 32) + pair / M::kPairs * M::kNext + row * M::kRow * 2;
    return reinterpret_cast<const Value*>(reinterpret_cast<const char*>(shared) + bytes);
  }
};

// Columns past D are zeros, whose products change nothing. The emulator, which is slow, skips them.
__device__ __forceinline__ bool is_used(int column, int columns) {
#if defined(__CUDACC__)
  return true;
#else
  return column < columns;
#endif
}

// One chunk where rows cannot be read 16 bytes at a time.
template <typename Value>
__device__ inline void copy_chunk(Value* to, const Value* from, int count) {
#pragma unroll 1
  for (int e = 0; e < 8; ++e) to[e] = e < count ? from[e] : Value{};
}

// Copies tiles of kCount rows of one head, by kThreads threads. What a thread needs for that is
// computed once for the head.
template <int kD, int kCount, int kThreads, typename Value, int kSplit = 0>
class TileCopy {
 public:
  // end: rows from it on are zeros.
  __device__ __forceinline__ TileCopy(const Rows<Value>& rows, int end, const Heads& heads)
      : step_(static_cast<int>(rows.step)) {
    const int thread = static_cast<int>(threadIdx.x), row = thread / kChunks;
    const int column = thread % kChunks * 8;
    from_ = rows.data + row * rows.step + column;
    place_ = place_in_tile<kD, kSplit>(row, thread % kChunks);
    end_ = (kPass * kChunks == kThreads || row < kPass) && column < heads.D ? end - row : kNone;
    count_ = heads.vectored ? 8 : min(8, heads.D - column);
    is_vectored_ = heads.vectored;
    if (row >= kPass) place_ = -1;
  }

  // The head that begins `further` elements after this one.
  __device__ __forceinline__ void advance(int64_t further) { from_ += further; }

  // Begins to copy rows `first` .. into the tile at element `tile` of shared memory.
  __device__ __forceinline__ void start(Value* shared, int tile, int first) const {
    if (kPass * kChunks < kThreads && place_ < 0) return;
    Value* to = shared + tile + place_;
    const Value* from = from_ + int64_t{first} * step_;
    if (is_vectored_) {
#pragma unroll
      for (int i = 0; i < kCount; i += kPass) {
        start_copy_or_zero(to + i * kRow, from + int64_t{i} * step_, first + i < end_);
      }
    } else {
#pragma unroll 1
      for (int i = 0; i < kCount; i += kPass) {
        copy_chunk(to + i * kRow, from + int64_t{i} * step_, first + i < end_ ? count_ : 0);
      }
    }
  }

 private:
  // A pass copies rows that are a multiple of eight apart: their chunks have the same place.
  static constexpr int kChunks = kD / 8, kPass = kThreads / kChunks / 8 * 8;
  static_assert(kPass > 0 && kCount % kPass == 0);
  static constexpr int kRow = Mix<kD, kSplit>::kRow;
  static constexpr int kNone = -(1 << 30);

  const Value* from_;
  int step_, place_, end_, count_;
  bool is_vectored_;
};

// Own fragments out of rows `row` .. + 15, a multiple of 16, of the tile at byte `tile`.
template <int kD, int kSplit = 0, typename Value>
__device__ __forceinline__ void load_own(uint32_t (&own)[kD / 16][4], const Value* shared, int tile,
                                         int row) {
  const int lane = lane_of_warp();
  const LaneReads<kD, kSplit> reads(tile, row + lane % 16, lane / 16);
#pragma unroll
  for (int k = 0; k < kD / 16; ++k) load_matrices(own[k], reads.at(shared, k, 0));
}

// c (16, 8 kTiles) += own rows · those of the tile at byte `tile`.
template <int kD, int kTiles, typename Value>
__device__ __forceinline__ void multiply_own(float (&c)[kTiles][4],
                                             const uint32_t (&own)[kD / 16][4], const Value* shared,
                                             int tile, int columns) {
  const int lane = lane_of_warp();
  const LaneReads<kD> reads(tile, lane % 8 + lane / 16 * 8, lane / 8 % 2);
#pragma unroll
  for (int k = 0; k < kD / 16; ++k) {
    if (!is_used(16 * k, columns)) break;
#pragma unroll
    for (int n = 0; n < kTiles; n += 2) {
      uint32_t y[4];
      load_matrices(y, reads.at(shared, k, n * 8));
      mma(Value{}, c[n], own[k], y[0], y[1]);
      mma(Value{}, c[n + 1], own[k], y[2], y[3]);
    }
  }
}

// Weights (16, 8 kTiles), rounded, as fragments.
template <typename Value, int kTiles>
__device__ __forceinline__ void pack_weights(uint32_t (&to)[kTiles / 2][4],
                                             const float (&c)[kTiles][4]) {
#pragma unroll
  for (int n = 0; n < kTiles; ++n) {
    to[n / 2][n % 2 * 2] = two_of(Value{}, c[n][0], c[n][1]);
    to[n / 2][n % 2 * 2 + 1] = two_of(Value{}, c[n][2], c[n][3]);
  }
}

// The floats of fragments (16, 16 kSteps), as pack_weights had them, but rounded.
template <typename Value, int kSteps>
__device__ __forceinline__ void unpack_fragments(float (&to)[2 * kSteps][4],
                                                 const uint32_t (&fragments)[kSteps][4]) {
#pragma unroll
  for (int n = 0; n < 2 * kSteps; ++n) {
    unpack_two(Value{}, fragments[n / 2][n % 2 * 2], to[n][0], to[n][1]);
    unpack_two(Value{}, fragments[n / 2][n % 2 * 2 + 1], to[n][2], to[n][3]);
  }
}

// c (16, kD) += weights (16, 16 kSteps) · the tile of 16 kSteps rows at byte `tile`.
template <int kD, int kSteps, typename Value>
__device__ __forceinline__ void add_weighted(float (&c)[kD / 8][4],
                                             const uint32_t (&weights)[kSteps][4],
                                             const Value* shared, int tile, int columns) {
  const int lane = lane_of_warp();
  const LaneReads<kD> reads(tile, lane % 16, lane / 16);
#pragma unroll
  for (int k = 0; k < kSteps; ++k) {
#pragma unroll
    for (int n = 0; n < kD / 8; n += 2) {
      if (!is_used(8 * n, columns)) break;
      uint32_t y[4];
      load_matrices_transposed(y, reads.at(shared, n / 2, k * 16));
      mma(Value{}, c[n], weights[k], y[0], y[1]);
      mma(Value{}, c[n + 1], weights[k], y[2], y[3]);
    }
  }
}

}  // namespace weft::cuda
