// kernel/cpu/level/gemm_operand.h: the factors of a product as rows of memory.
//
// A "line" is a row of A or a column of B: what one element of C reads along k. An operand's rows
// in memory are either lines (k runs along the row) or single k (a line runs down the column).
#pragma once

#include "kernel/kernels.h"

namespace weft::WEFT_LEVEL {
namespace {

// T elements in place: stacked matrices.
template <typename T>
struct Rows {
  T* part[kMaxParts];
  int64_t end[kMaxParts];  // first row past the part, counted from the top of the stack
  int64_t ld;

  [[gnu::always_inline]] T* at(int64_t row) const {
    if (row < end[0]) return part[0] + row * ld;
    int i = 1;
    while (row >= end[i] && i < kMaxParts - 1) ++i;
    return part[i] + (row - end[i - 1]) * ld;
  }
};

template <typename T>
struct Operand {
  Rows<T> rows;
  bool rows_are_lines;
};

template <typename T>
Rows<T> stacked_rows(const Stack& stack) {
  Rows<T> rows{};
  rows.ld = stack.ld;
  int64_t end = 0;
  for (int i = 0; i < kMaxParts; ++i) {
    if (i < stack.count) end += stack.rows[i];
    rows.part[i] = static_cast<T*>(i < stack.count ? stack.part[i] : nullptr);
    rows.end[i] = end;
  }
  return rows;
}

template <typename T>
Operand<const T> left_operand(const GemmArgs& args) {
  const int64_t num_rows = args.a_transposed ? args.K : args.M;
  const T* a = static_cast<const T*>(args.a);
  Rows<const T> rows{};
  rows.part[0] = a;
  rows.end[0] = num_rows;
  rows.ld = args.lda;
  return {rows, !args.a_transposed};
}

template <typename T>
Operand<const T> right_operand(const GemmArgs& args) {
  return {stacked_rows<const T>(args.b), args.b_transposed};
}

[[gnu::always_inline]] inline int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }
[[gnu::always_inline]] inline int64_t round_up(int64_t a, int64_t b) { return ceil_div(a, b) * b; }

}  // namespace
}  // namespace weft::WEFT_LEVEL
