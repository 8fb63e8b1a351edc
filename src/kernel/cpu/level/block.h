// kernel/cpu/level/block.h: products of small fp32 blocks that lie in the first-level cache.
//
// C (M, N) (+)= A (M, K) · B (K, N): N is a multiple of kTileColumns, M of kTileRows, K of 4.
// A tile of C stays in registers while k runs; every element is one fused chain over k.
#pragma once

#include "kernel/cpu/level/simd.h"

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
  kLowerA,  // A (m, k) is zero where k > m
  kUpperA,  // A (m, k) is zero where k < m
};

// What a product does with the C that it finds.
enum class Old {
  kReplace,
  kAdd,
  kScaleAndAdd
};  // the last: row m of C is multiplied with scale[m]

// Sums of one tile. kTransposed: A is stored as (K, M).
template <bool kTransposed>
WEFT_INLINE void add_tile(Vec (&sums)[kTileRows][2], int64_t begin, int64_t end, const float* a,
                          int64_t lda, const float* b, int64_t ldb) {
  if constexpr (kTransposed) {
    for (int64_t k = begin; k < end; ++k) {
      const Vec b0 = load(b + k * ldb), b1 = load(b + k * ldb + kLanes);
#pragma GCC unroll 8
      for (int m = 0; m < kTileRows; m += 4) {
        const Quad q = load_quad(a + k * lda + m);
        sums[m][0] = fma_quad<0>(q, b0, sums[m][0]);
        sums[m][1] = fma_quad<0>(q, b1, sums[m][1]);
        sums[m + 1][0] = fma_quad<1>(q, b0, sums[m + 1][0]);
        sums[m + 1][1] = fma_quad<1>(q, b1, sums[m + 1][1]);
        sums[m + 2][0] = fma_quad<2>(q, b0, sums[m + 2][0]);
        sums[m + 2][1] = fma_quad<2>(q, b1, sums[m + 2][1]);
        sums[m + 3][0] = fma_quad<3>(q, b0, sums[m + 3][0]);
        sums[m + 3][1] = fma_quad<3>(q, b1, sums[m + 3][1]);
      }
    }
  } else {
    for (int64_t k = begin; k < end; k += 4) {
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
}

template <bool kTransposed, Old kOld>
[[gnu::flatten, gnu::noinline]] void multiply(int64_t M, int64_t N, int64_t K, const float* a,
                                              int64_t lda, const float* b, int64_t ldb, float* c,
                                              int64_t ldc, Shape shape,
                                              const float* scale = nullptr) {
  for (int64_t m0 = 0; m0 < M; m0 += kTileRows) {
    const int64_t columns = shape == Shape::kLowerC ? lesser(N, m0 + kTileRows) : N;
    const int64_t begin = shape == Shape::kUpperA ? m0 : 0;
    const int64_t end = shape == Shape::kLowerA ? lesser(K, m0 + kTileRows) : K;
    const float* a_tile = kTransposed ? a + m0 : a + m0 * lda;
    for (int64_t n0 = 0; n0 < columns; n0 += kTileColumns) {
      float* tile = c + m0 * ldc + n0;
      Vec sums[kTileRows][2];
#pragma GCC unroll 8
      for (int m = 0; m < kTileRows; ++m) {
        sums[m][0] = kOld == Old::kReplace ? zero() : load(tile + m * ldc);
        sums[m][1] = kOld == Old::kReplace ? zero() : load(tile + m * ldc + kLanes);
        if constexpr (kOld == Old::kScaleAndAdd) {
          sums[m][0] = sums[m][0] * splat(scale[m0 + m]);
          sums[m][1] = sums[m][1] * splat(scale[m0 + m]);
        }
      }
      add_tile<kTransposed>(sums, begin, end, a_tile, lda, b + n0, ldb);
#pragma GCC unroll 8
      for (int m = 0; m < kTileRows; ++m) {
        store(tile + m * ldc, sums[m][0]);
        store(tile + m * ldc + kLanes, sums[m][1]);
      }
    }
  }
}

// `rows` rows of `columns` elements as fp32 with stride ld; zeros fill up to all_rows and ld.
template <typename T>
[[gnu::flatten]] void copy_block(const T* from, int64_t from_ld, int64_t rows, int64_t columns,
                                 float* to, int64_t ld, int64_t all_rows) {
  for (int64_t r = 0; r < all_rows; ++r) {
    float* row = to + r * ld;
    int64_t c = 0;
    if (r < rows) {
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
