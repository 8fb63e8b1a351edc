// kernel/cuda/attention_tiles.h: tiles of the built-in attention kernels: sizes, loads, products.
//
// A block owns kRows rows (queries, or keys), 16 per warp, and walks over the other side in blocks
// of kBlock. Both are in shared memory as rows of a head; columns up to a multiple of 16 are filled
// with zeros, and so are rows that do not exist. A warp's result (16, N) is in registers in the
// layout of the tensor cores (mma.h): c[n][0..3] are (r, 8n+c) (r, 8n+c+1) (r+8, ..) (r+8, ..) with
// r = lane / 4 and c = 2 (lane % 4). bf16 and fp16 are multiplied by tensor cores; fp32 by chains
// of fmaf, one per element, in the order of the contracted index, into the same layout.
#pragma once

#include <type_traits>

#include "kernel/cuda/mma.h"
#include "kernel/cuda/values.h"
#include "kernel/kernels.h"

namespace weft::cuda {

// Sizes by the bytes of a row of kD elements, so that a block's shared memory stays below 64 KiB,
// which every GPU has: own rows, and rows of a block of the other side. The backward kernels keep
// two tensors of each, the forward one keeps one of its own side.
template <typename Value, int kD>
struct Tiles {
  static constexpr int kBytes = static_cast<int>(sizeof(Value)) * kD;
  static constexpr int kPad = 16 / static_cast<int>(sizeof(Value));  // spreads rows over the banks
  static constexpr int kLd = kD + kPad;
  static constexpr int kRows = kBytes <= 256 ? 64 : 32;
  static constexpr int kBlock = kBytes <= 128 ? 64 : kBytes <= 512 ? 32 : 8;
  static constexpr int kBackRows = kBytes <= 256 ? 64 : kBytes <= 512 ? 32 : 16;
  static constexpr int kBackBlock = kBytes <= 128   ? 64
                                    : kBytes <= 256 ? 32
                                    : kBytes <= 512 ? 16
                                                    : 8;
  // Columns of dk and dv in one block of threads: with 256 they would not fit into registers.
  static constexpr int kColumns = kD <= 128 ? kD : 128;
};

// One head's rows in memory: row i begins at data + i * step.
template <typename Value>
struct Rows {
  const Value* data;
  int64_t step;
};

// A tensor of heads (kernel/kernels.h) of one type.
template <typename Value>
struct Strided {
  Value* data;
  int64_t row, position, head;

  __device__ Rows<std::remove_const_t<Value>> rows(int b, int h) const {
    return {data + b * row + h * head, position};
  }
  __device__ Value* at(int b, int t, int h) const {
    return data + b * row + t * position + h * head;
  }
};

// Positions of one side of attention, queries or keys, of one row of the batch.
struct Side {
  const int32_t* positions;  // null: the row is one segment
  int length;

  __device__ int begin(int t) const { return positions == nullptr ? 0 : t - positions[t]; }
  // Behind the segment that begins at `from`, `end` at most: by halves, since in a segment
  // positions grow by one.
  __device__ int end(int from, int end) const {
    end = min(end, length);
    if (positions == nullptr || from >= end) return end;
    int inside = from, outside = end;
    while (outside - inside > 1) {
      const int middle = (inside + outside) / 2;
      (positions[middle] == middle - from ? inside : outside) = middle;
    }
    return outside;
  }
};

// Positions begin .. end - 1 of one side, and the segment of the other side that belongs to them.
struct Segment {
  int begin, end, other_begin, other_end;
  // Of the position of the other side that has the same place in its segment.
  __device__ int shift() const { return other_begin - begin; }
};

// The parameters of one call that all kernels need. Positions of a row are int.
struct Heads {
  int T, S, H, G, D;
  int columns;    // D up to a multiple of 16
  bool vectored;  // rows can be read 16 bytes at a time
  bool paired;    // rows can be written by pairs
  bool causal;
  int window;
  const int32_t *lengths, *source_lengths, *positions, *source_positions;

  __device__ Side queries(int b) const { return side(b, T, lengths, positions); }
  __device__ Side keys(int b) const { return side(b, S, source_lengths, source_positions); }

  // The segment of position t of `own`; its end is `end` at most.
  __device__ static Segment segment(const Side& own, const Side& other, int t, int end) {
    Segment at = {own.begin(t), own.end(own.begin(t), end), 0, 0};
    if (own.positions == other.positions) {
      at.other_begin = min(at.begin, other.length);
    } else {
      for (int i = own.end(0, own.length); i <= at.begin; i = own.end(i, own.length)) {
        at.other_begin = other.end(at.other_begin, other.length);
      }
    }
    at.other_end = other.end(at.other_begin, other.length);
    return at;
  }
  // Of lse and delta (B, H, T).
  __device__ int64_t statistic(int b, int h, int t) const { return (int64_t{b} * H + h) * T + t; }

 private:
  __device__ static Side side(int b, int most, const int32_t* lengths, const int32_t* positions) {
    return {positions == nullptr ? nullptr : positions + int64_t{b} * most,
            lengths == nullptr ? most : max(0, min(lengths[b], most))};
  }
};

// Positions of the other side that a position sees: begin .. end - 1.
struct Seen {
  int begin, end;
  __device__ bool operator()(int i) const { return i >= begin && i < end; }
};
// Of query t in `at`, a segment of queries; of others nothing.
__device__ inline Seen seen_keys(const Heads& heads, const Segment& at, int t) {
  if (t < at.begin || t >= at.end) return {0, 0};
  const int own = t + at.shift();
  return {heads.window > 0 ? max(at.other_begin, own - heads.window + 1) : at.other_begin,
          heads.causal ? min(at.other_end, own + 1) : at.other_end};
}
// Of key j in `at`, a segment of keys.
__device__ inline Seen seeing_queries(const Heads& heads, const Segment& at, int j) {
  if (j < at.begin || j >= at.end) return {0, 0};
  const int own = j + at.shift();
  return {heads.causal ? max(at.other_begin, own) : at.other_begin,
          heads.window > 0 ? min(at.other_end, own + heads.window) : at.other_end};
}

// rows `first` .. first + count - 1 into `to`, those from `end` on as zeros.
template <int kLd, typename Value>
__device__ void load_tile(Value* to, Rows<Value> rows, int first, int count, int end,
                          const Heads& heads) {
  constexpr int kWide = kPack<Value>;
  const int width = heads.vectored ? kWide : 1;
  const int pieces = heads.columns / width;
  for (int i = static_cast<int>(threadIdx.x); i < count * pieces;
       i += static_cast<int>(blockDim.x)) {
    const int row = i / pieces, column = i % pieces * width;
    const bool is_there = first + row < end && column < heads.D;
    const Value* from = rows.data + (first + row) * rows.step + column;
    if (heads.vectored) {
      Raw<Value, kWide> raw{};
      if (is_there) raw = load_raw<kWide>(from);
      store_raw<kWide>(to + row * kLd + column, raw);
    } else {
      to[row * kLd + column] = is_there ? *from : Value{};
    }
  }
}

// c (16, 8 kTiles) += a (16, K) · b (8 kTiles, K) transposed; rows of both are contiguous.
template <int kTiles, typename Value>
__device__ __forceinline__ void multiply_rows(float (&c)[kTiles][4], const Value* a, int lda,
                                              const Value* b, int ldb, int K) {
  const int lane = lane_of_warp();
  a += lane % 16 * lda + lane / 16 * 8;
  b += (lane % 8 + lane / 16 * 8) * ldb + lane / 8 % 2 * 8;
  for (int k = 0; k < K; k += 16) {
    uint32_t x[4], y[4];
    load_matrices(x, a + k);
#pragma unroll
    for (int n = 0; n < kTiles; n += 2) {
      load_matrices(y, b + n * 8 * ldb + k);
      mma(Value{}, c[n], x, y[0], y[1]);
      mma(Value{}, c[n + 1], x, y[2], y[3]);
    }
  }
}

// c (16, 8 kTiles) += a (16, kK) · b (kK, columns); columns of c past `columns` are left.
template <int kK, int kTiles, typename Value>
__device__ __forceinline__ void multiply_columns(float (&c)[kTiles][4], const Value* a, int lda,
                                                 const Value* b, int ldb, int columns) {
  const int lane = lane_of_warp();
  a += lane % 16 * lda + lane / 16 * 8;
  b += lane % 16 * ldb + lane / 16 * 8;
#pragma unroll
  for (int k = 0; k < kK; k += 16) {
    uint32_t x[4], y[4];
    load_matrices(x, a + k);
#pragma unroll
    for (int n = 0; n < kTiles; n += 2) {
      if (n * 8 >= columns) continue;
      load_matrices_transposed(y, b + k * ldb + n * 8);
      mma(Value{}, c[n], x, y[0], y[1]);
      mma(Value{}, c[n + 1], x, y[2], y[3]);
    }
  }
}

template <int kTiles>
__device__ __forceinline__ void multiply_rows(float (&c)[kTiles][4], const float* a, int lda,
                                              const float* b, int ldb, int K) {
  const int lane = lane_of_warp();
  a += lane / 4 * lda;
  b += lane % 4 * 2 * ldb;
  for (int k = 0; k < K; k += 4) {
    float upper[4], lower[4];
    load(a + k, upper);
    load(a + 8 * lda + k, lower);
#pragma unroll
    for (int n = 0; n < kTiles; ++n) {
      float x[4], y[4];
      load(b + n * 8 * ldb + k, x);
      load(b + (n * 8 + 1) * ldb + k, y);
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        c[n][0] = fmaf(upper[i], x[i], c[n][0]);
        c[n][1] = fmaf(upper[i], y[i], c[n][1]);
        c[n][2] = fmaf(lower[i], x[i], c[n][2]);
        c[n][3] = fmaf(lower[i], y[i], c[n][3]);
      }
    }
  }
}

template <int kK, int kTiles>
__device__ __forceinline__ void multiply_columns(float (&c)[kTiles][4], const float* a, int lda,
                                                 const float* b, int ldb, int columns) {
  const int lane = lane_of_warp();
  a += lane / 4 * lda;
  b += lane % 4 * 2;
#pragma unroll 4
  for (int k = 0; k < kK; ++k) {
    const float upper = a[k], lower = a[8 * lda + k];
#pragma unroll
    for (int n = 0; n < kTiles; ++n) {
      if (n * 8 >= columns) continue;
      const float2 both = *reinterpret_cast<const float2*>(b + k * ldb + n * 8);
      c[n][0] = fmaf(upper, both.x, c[n][0]);
      c[n][1] = fmaf(upper, both.y, c[n][1]);
      c[n][2] = fmaf(lower, both.x, c[n][2]);
      c[n][3] = fmaf(lower, both.y, c[n][3]);
    }
  }
}

// A warp's (16, 8 kTiles) into its rows of shared memory, rounded to their type.
template <typename Value>
__device__ __forceinline__ void put_pair(Value* to, float x, float y) {
  *reinterpret_cast<uint32_t*>(to) = two_of(Value{}, x, y);
}
__device__ __forceinline__ void put_pair(float* to, float x, float y) {
  *reinterpret_cast<float2*>(to) = make_float2(x, y);
}
template <int kTiles, typename Value>
__device__ __forceinline__ void put_tile(Value* to, int ld, const float (&c)[kTiles][4]) {
  const int lane = lane_of_warp();
  to += lane / 4 * ld + lane % 4 * 2;
#pragma unroll
  for (int n = 0; n < kTiles; ++n) {
    put_pair(to + n * 8, c[n][0], c[n][1]);
    put_pair(to + 8 * ld + n * 8, c[n][2], c[n][3]);
  }
}

// Row r (half 0) or r + 8 (half 1) of a warp's result into a row of D elements, from column `first`
// on.
template <int kTiles, typename Value>
__device__ __forceinline__ void put_row(Value* to, const float (&c)[kTiles][4], int half, int first,
                                        const Heads& heads) {
  const int D = heads.D;
#pragma unroll
  for (int n = 0; n < kTiles; ++n) {
    const int d = first + n * 8 + lane_of_warp() % 4 * 2;
    const float x = c[n][2 * half], y = c[n][2 * half + 1];
    if (d + 1 < D && heads.paired) {
      put_pair(to + d, x, y);
    } else {
      if (d < D) store_one(to + d, x);
      if (d + 1 < D) store_one(to + d + 1, y);
    }
  }
}

template <int kTiles>
__device__ __forceinline__ void clear(float (&c)[kTiles][4]) {
#pragma unroll
  for (int n = 0; n < kTiles; ++n) {
#pragma unroll
    for (int i = 0; i < 4; ++i) c[n][i] = 0.0f;
  }
}

}  // namespace weft::cuda
