// kernel/cpu/level/dropout_mask.h: the mask of dropout: of attention by squares of 16 x 16, of
// activations by 32 columns.
//
// kernel/dropout.h has the rule. Eight neighbouring lines of one side are drawn together, so that
// the rounds are loops of fixed length, which the compiler turns into vectors.
#pragma once

#include "kernel/cpu/level/simd.h"
#include "kernel/dropout.h"

namespace weft::WEFT_LEVEL {

// Eight counters become their blocks of words: c[w][i] is word w of block i.
WEFT_INLINE void draw_eight(const DropoutKey& key, uint32_t (&c)[4][8]) {
  uint32_t k0 = key.key[0], k1 = key.key[1];
#pragma GCC unroll 7
  for (int round = 0; round < kDropoutRounds; ++round) {
    for (int i = 0; i < 8; ++i) {
      const uint64_t p0 = uint64_t{kPhiloxMultiply0} * c[0][i];
      const uint64_t p1 = uint64_t{kPhiloxMultiply1} * c[2][i];
      c[0][i] = static_cast<uint32_t>(p1 >> 32) ^ c[1][i] ^ k0;
      c[1][i] = static_cast<uint32_t>(p1);
      c[2][i] = static_cast<uint32_t>(p0 >> 32) ^ c[3][i] ^ k1;
      c[3][i] = static_cast<uint32_t>(p0);
    }
    k0 += kPhiloxWeyl0;
    k1 += kPhiloxWeyl1;
  }
}

// Of an activation: what the columns from 4 quad on, eight times four of them, are multiplied with
// at position t.
inline constexpr int64_t kDrawnColumns = 8 * kDropoutQuad;
WEFT_INLINE void draw_columns(const HeadDropout& dropout, int64_t t, int64_t quad, float* to) {
  uint32_t c[4][8];
  for (uint32_t i = 0; i < 8; ++i) {
    c[0][i] = static_cast<uint32_t>(t);
    c[1][i] = static_cast<uint32_t>(quad) + i;
    c[2][i] = dropout.key.stream[0];
    c[3][i] = dropout.key.stream[1];
  }
  draw_eight(dropout.key, c);
  for (int i = 0; i < 8; ++i) {
    for (int w = 0; w < 4; ++w) to[4 * i + w] = c[w][i] < dropout.threshold ? 0.0f : dropout.scale;
  }
}

inline constexpr int64_t kSquare = 16;

// The square whose first positions are `down` and `across`, multiples of 16: 0 or scale.
template <bool kQueriesAcross>
WEFT_INLINE void draw_square(const HeadDropout& dropout, int64_t down, int64_t across, float* to) {
  const auto line = [](int64_t first) { return static_cast<uint32_t>(first / 2); };
  for (uint32_t r = 0; r < 8; ++r) {
    uint32_t c[4][8];
    for (uint32_t i = 0; i < 8; ++i) {
      c[0][i] = kQueriesAcross ? line(across) + i : line(down) + r;
      c[1][i] = kQueriesAcross ? line(down) + r : line(across) + i;
      c[2][i] = dropout.key.stream[0];
      c[3][i] = dropout.key.stream[1];
    }
    draw_eight(dropout.key, c);
    for (uint32_t w = 0; w < 4; ++w) {
      const uint32_t low = kQueriesAcross ? w % 2 : w / 2, right = kQueriesAcross ? w / 2 : w % 2;
      float* row = to + (r + 8 * low) * kSquare + 8 * right;
      for (int i = 0; i < 8; ++i) row[i] = c[w][i] < dropout.threshold ? 0.0f : dropout.scale;
    }
  }
}

// keep (rows, columns), step from row to row: what probabilities are multiplied with. Its first
// element is that of the positions `down` and `across`. Causal: positions of queries and keys are
// compared as they are, and where all keys of a square come after its queries there are zeros. So
// it is only for segments that begin at the same position on both sides.
template <bool kQueriesAcross>
void fill_keep(const HeadDropout& dropout, int64_t down, int64_t rows, int64_t across,
               int64_t columns, float* keep, int64_t step, bool causal) {
  alignas(64) float square[kSquare * kSquare];
  for (int64_t d = down / kSquare * kSquare; d < down + rows; d += kSquare) {
    const int64_t first_row = greater(d, down), last_row = lesser(d + kSquare, down + rows);
    for (int64_t a = across / kSquare * kSquare; a < across + columns; a += kSquare) {
      const int64_t first = greater(a, across), last = lesser(a + kSquare, across + columns);
      const bool is_seen = !causal || (kQueriesAcross ? d <= a : a <= d);
      if (is_seen) draw_square<kQueriesAcross>(dropout, d, a, square);
      for (int64_t r = first_row; r < last_row; ++r) {
        float* to = keep + (r - down) * step + first - across;
        const size_t bytes = static_cast<size_t>(last - first) * sizeof(float);
        if (is_seen) {
          __builtin_memcpy(to, square + (r - d) * kSquare + first - a, bytes);
        } else {
          __builtin_memset(to, 0, bytes);
        }
      }
    }
  }
}

}  // namespace weft::WEFT_LEVEL
