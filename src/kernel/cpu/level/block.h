// kernel/cpu/level/block.h: products of small fp32 blocks in the L1 cache.
//
// C (M, N) (+)= A (M, K) · B (K, N): N is a multiple of kTileColumns, M of kTileRows, K of 4.
// A tile of C stays in registers while k runs; every element is one fused chain over k. Where A is
// stored as (K, M), tiles are three vectors wide: 24 sums at work hide the latency of the fused
// multiply-add better than 16 (on a Neoverse V1 8.5 instead of 6.5 G instructions per second).
#pragma once

#include "kernel/cpu/level/block_neon.h"

namespace weft::WEFT_LEVEL {

inline constexpr int kTileColumns = 2 * kLanes;

template <int kValue>
struct Lane {
  static constexpr int value = kValue;
};

// Which part of a square block of a causal product counts; the rest is not computed.
enum class Shape {
  kWhole,
  kLowerC,  // only n <= m of C is wanted
  kUpperC,  // only n >= m of C is wanted
  kLowerA,  // A (m, k) is zero where k > m
  kUpperA,  // A (m, k) is zero where k < m
};

// The rows of tile m0: which columns and which k's it needs.
struct Extent {
  int64_t first_column, last_column, first_k, last_k;
};
WEFT_INLINE Extent extent_of(Shape shape, int64_t m0, int64_t rows, int64_t N, int64_t K) {
  return {.first_column = shape == Shape::kUpperC ? m0 : 0,
          .last_column = shape == Shape::kLowerC ? lesser(N, m0 + rows) : N,
          .first_k = shape == Shape::kUpperA ? m0 : 0,
          .last_k = shape == Shape::kLowerA ? lesser(K, m0 + rows) : K};
}

// A is stored as (K, M).
template <int kVectors>
WEFT_INLINE void add_columns(Vec (&sums)[kTileRows][kVectors], const Extent& extent, const float* a,
                             int64_t lda, const float* b, int64_t ldb) {
  for (int64_t k = extent.first_k; k < extent.last_k; ++k) {
    Vec row[kVectors];
#pragma GCC unroll 3
    for (int v = 0; v < kVectors; ++v) row[v] = load(b + k * ldb + v * kLanes);
#pragma GCC unroll 8
    for (int m = 0; m < kTileRows; m += 4) {
      const Quad q = load_quad(a + k * lda + m);
#pragma GCC unroll 3
      for (int v = 0; v < kVectors; ++v) {
        sums[m][v] = fma_quad<0>(q, row[v], sums[m][v]);
        sums[m + 1][v] = fma_quad<1>(q, row[v], sums[m + 1][v]);
        sums[m + 2][v] = fma_quad<2>(q, row[v], sums[m + 2][v]);
        sums[m + 3][v] = fma_quad<3>(q, row[v], sums[m + 3][v]);
      }
    }
  }
}

// A is stored as (M, K): four k's of every row at a time.
template <int kVectors>
WEFT_INLINE void add_rows(Vec (&sums)[kTileRows][kVectors], const Extent& extent, const float* a,
                          int64_t lda, const float* b, int64_t ldb) {
  for (int64_t k = extent.first_k; k < extent.last_k; k += 4) {
    Quad q[kTileRows];
#pragma GCC unroll 8
    for (int m = 0; m < kTileRows; ++m) q[m] = load_quad(a + m * lda + k);
    const auto step = [&](auto lane, const float* row) {
      const Vec b0 = load(row), b1 = load(row + kLanes);
#pragma GCC unroll 8
      for (int m = 0; m < kTileRows; ++m) {
        sums[m][0] = fma_quad<decltype(lane)::value>(q[m], b0, sums[m][0]);
        sums[m][1] = fma_quad<decltype(lane)::value>(q[m], b1, sums[m][1]);
      }
    };
    step(Lane<0>{}, b + k * ldb);
    step(Lane<1>{}, b + (k + 1) * ldb);
    step(Lane<2>{}, b + (k + 2) * ldb);
    step(Lane<3>{}, b + (k + 3) * ldb);
  }
}

template <bool kTransposed, Old kOld, int kVectors>
WEFT_INLINE void multiply_tile(const Extent& extent, const float* a, int64_t lda, const float* b,
                               int64_t ldb, float* c, int64_t ldc, const float* scale) {
#if defined(__aarch64__)
  if constexpr (kTransposed && kVectors == 3) {
    const int64_t k = extent.first_k;
    return multiply_8x12<kOld>(extent.last_k - k, a + k * lda, lda, b + k * ldb, ldb, c, ldc,
                               scale);
  }
#endif
  Vec sums[kTileRows][kVectors];
#pragma GCC unroll 8
  for (int m = 0; m < kTileRows; ++m) {
#pragma GCC unroll 3
    for (int v = 0; v < kVectors; ++v) {
      sums[m][v] = kOld == Old::kReplace ? zero() : load(c + m * ldc + v * kLanes);
      if constexpr (kOld == Old::kScaleAndAdd) sums[m][v] = sums[m][v] * splat(scale[m]);
    }
  }
  if constexpr (kTransposed) {
    add_columns(sums, extent, a, lda, b, ldb);
  } else {
    add_rows(sums, extent, a, lda, b, ldb);
  }
#pragma GCC unroll 8
  for (int m = 0; m < kTileRows; ++m) {
#pragma GCC unroll 3
    for (int v = 0; v < kVectors; ++v) store(c + m * ldc + v * kLanes, sums[m][v]);
  }
}

template <bool kTransposed, Old kOld>
[[gnu::flatten, gnu::noinline]] void multiply(int64_t M, int64_t N, int64_t K, const float* a,
                                              int64_t lda, const float* b, int64_t ldb, float* c,
                                              int64_t ldc, Shape shape,
                                              const float* scale = nullptr) {
  // As many tiles of three vectors as leave a multiple of two.
  const int64_t wide = kTransposed ? N - N / kTileColumns % 3 * kTileColumns : 0;
  for (int64_t m0 = 0; m0 < M; m0 += kTileRows) {
    const Extent extent = extent_of(shape, m0, kTileRows, N, K);
    const float* a_tile = kTransposed ? a + m0 : a + m0 * lda;
    const float* row_scale = kOld == Old::kScaleAndAdd ? scale + m0 : nullptr;
    int64_t n0 = 0;
    for (; n0 < lesser(wide, extent.last_column); n0 += 3 * kLanes) {
      if (n0 + 3 * kLanes <= extent.first_column) continue;
      multiply_tile<kTransposed, kOld, kTransposed ? 3 : 2>(extent, a_tile, lda, b + n0, ldb,
                                                            c + m0 * ldc + n0, ldc, row_scale);
    }
    for (n0 = wide; n0 < extent.last_column; n0 += kTileColumns) {
      if (n0 + kTileColumns <= extent.first_column) continue;
      multiply_tile<kTransposed, kOld, 2>(extent, a_tile, lda, b + n0, ldb, c + m0 * ldc + n0, ldc,
                                          row_scale);
    }
  }
}

// Rows of a head are short and far apart: the machine's own prefetcher does not find them.
template <typename T>
WEFT_INLINE void prefetch_row(const T* from, int64_t columns) {
  constexpr int64_t kCacheLine = 64 / sizeof(T);
  for (int64_t i = 0; i < columns; i += kCacheLine) __builtin_prefetch(from + i);
}
inline constexpr int64_t kRowsAhead = 16;  // prefetched

// `rows` rows of `columns` elements as fp32 with stride ld; zeros fill up to all_rows and ld.
template <typename T>
[[gnu::flatten]] void copy_block(const T* from, int64_t from_ld, int64_t rows, int64_t columns,
                                 float* to, int64_t ld, int64_t all_rows) {
  for (int64_t r = 0; r < all_rows; ++r) {
    float* row = to + r * ld;
    int64_t c = 0;
    if (r < rows) {
      if (r + kRowsAhead < rows) prefetch_row(from + (r + kRowsAhead) * from_ld, columns);
      each_vector(columns, [&](int64_t i, auto part) {
        store(row + i, load(from + r * from_ld + i, part), part);
      });
      c = columns;
    }
    for (; c < ld; ++c) row[c] = 0.0f;
  }
}

// to (columns, rows) = from (rows, columns); both multiples of 4.
inline void transpose_block(const float* from, int64_t from_ld, int64_t rows, int64_t columns,
                            float* to, int64_t to_ld) {
  for (int64_t r = 0; r < rows; r += 4) {
    for (int64_t c = 0; c < columns; c += 4) {
      transpose4(from + r * from_ld + c, from_ld, to + c * to_ld + r, to_ld);
    }
  }
}

}  // namespace weft::WEFT_LEVEL
