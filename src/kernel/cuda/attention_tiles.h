// kernel/cuda/attention_tiles.h: tiles of the own attention kernels: sizes, loads, products.
//
// A block owns kRows rows (queries, or keys), 16 a warp, and walks over the other side in blocks of
// kBlock. Both lie in shared memory as rows of a head; columns up to a multiple of 16 are filled
// with zeros, and so are rows that do not exist. A warp's result (16, N) lies in registers as the
// tensor cores lay it out (mma.h): c[n][0..3] are (r, 8n+c) (r, 8n+c+1) (r+8, ..) (r+8, ..) with r
// = lane / 4 and c = 2 (lane % 4). bf16 and fp16 are multiplied by tensor cores; fp32 by chains of
// fmaf, one an element, in the order of the contracted index, into the same layout.
#pragma once

#include "kernel/cuda/mma.h"
#include "kernel/cuda/values.h"
#include "kernel/kernels.h"

namespace weft::cuda {

// Sizes by the bytes of a row of kD elements, so that a block's shared memory stays below 64 KiB,
// which every GPU has: rows of own, rows of a block of the other side. The backward kernels keep
// two tensors of each, the forward one keeps one of own.
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

// One head's rows as they lie in memory: row i begins at data + i * step.
template <typename Value>
struct Rows {
  const Value* data;
  int64_t step;
};

// Of one call: what all kernels need to know. Positions of a row are counted in int.
struct Heads {
  int T, H, G, D;
  int columns;    // D up to a multiple of 16
  bool vectored;  // rows can be read 16 bytes at a time
  bool padding_attends;
  const int32_t* lengths;
  const int32_t* positions;

  __device__ int64_t width() const { return int64_t{H + 2 * G} * D; }
  __device__ int length(int b) const { return max(0, min(lengths[b], T)); }
  // Queries below this one attend; keys are those below the length.
  __device__ int num_queries(int length) const {
    return padding_attends && length > 0 ? T : length;
  }
  // Of the segment that query t is in.
  __device__ int begin(int b, int t) const {
    return positions == nullptr ? 0 : t - positions[int64_t{b} * T + t];
  }
  // The position behind the segment of t, `end` at most.
  __device__ int end_of_segment(int b, int t, int end) const {
    if (positions == nullptr) return end;
    const int first = begin(b, t);
    for (++t; t < end && begin(b, t) == first;) ++t;
    return t;
  }
  // Of lse and delta (B, H, T).
  __device__ int64_t statistic(int b, int h, int t) const { return (int64_t{b} * H + h) * T + t; }
};

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
// on: pairs go together where D is even, and so all addresses of pairs too.
template <int kTiles, typename Value>
__device__ __forceinline__ void put_row(Value* to, const float (&c)[kTiles][4], int half, int first,
                                        int D) {
#pragma unroll
  for (int n = 0; n < kTiles; ++n) {
    const int d = first + n * 8 + lane_of_warp() % 4 * 2;
    const float x = c[n][2 * half], y = c[n][2 * half + 1];
    if (d + 1 < D && D % 2 == 0) {
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

// The score of head h, query t and key j, out of their product. A bias by position (ALiBi,
// relative) would be added here, and is needed nowhere else.
struct PlainScore {
  float scale;
  __device__ __forceinline__ float operator()(float product, int, int, int) const {
    return product * scale;
  }
};

}  // namespace weft::cuda
