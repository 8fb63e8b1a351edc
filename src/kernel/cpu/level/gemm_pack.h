// kernel/cpu/level/gemm_pack.h: copies a block of a factor into panels, the order in which the
// register tile reads it.
//
// A panel holds kLines lines. Its k run in groups of kGroup, which one instruction takes together
// (1 for fp32, 2 for VDPBF16PS, 4 for BFMMLA, 32 for AMX's left factor):
//   panel[k / kGroup][line][k % kGroup]
// k past the end is zero up to a multiple of the tile's step. A line past the end holds something
// finite: its results are never stored.
#pragma once

#include <algorithm>
#include <cstring>

#include "kernel/cpu/level/gemm_operand.h"
#include "kernel/cpu/level/gemm_shuffle.h"

namespace weft::WEFT_LEVEL {
namespace {

// What a panel is made of: Source in memory (float or Bf16), Packed in the panel.
template <typename Source_, typename Packed_, int kLines_, int kGroup_, int kStep_>
struct Format {
  using Source = Source_;
  using Packed = Packed_;
  static constexpr int kLines = kLines_;
  static constexpr int kGroup = kGroup_;
  static constexpr int kStep = kStep_;
  static constexpr int kUnitBytes = kGroup * static_cast<int>(sizeof(Packed));
  static int64_t panel_elements(int64_t k) { return round_up(k, kStep) * kLines; }
};

// The last k of a panel, one element at a time, and the zeros that pad it.
template <typename F>
void pack_tail(typename F::Packed* panel, const Operand<const typename F::Source>& operand,
               int64_t line, int64_t lines, int64_t k0, int64_t k, int64_t k_end) {
  for (; k < round_up(k_end, F::kStep); ++k) {
    typename F::Packed* group = panel + (k / F::kGroup) * F::kGroup * F::kLines + k % F::kGroup;
    for (int64_t i = 0; i < F::kLines; ++i) {
      typename F::Packed value{};
      if (k < k_end && i < lines) {
        value =
            convert<typename F::Packed>(operand.rows_are_lines ? operand.rows.at(line + i)[k0 + k]
                                                               : operand.rows.at(k0 + k)[line + i]);
      }
      group[i * F::kGroup] = value;
    }
  }
}

// Rows are lines: a transposition of units (a unit is one line's group of k). While a panel is
// packed the rows of the next one are fetched, because each is too short for the machine's own
// prefetcher to find its stride.
template <typename F>
void pack_lines(typename F::Packed* panel, const Operand<const typename F::Source>& operand,
                int64_t line, int64_t lines, int64_t k0, int64_t k_count) {
  const typename F::Source* from[F::kLines];
  const typename F::Source* next[F::kLines];
  for (int64_t i = 0; i < F::kLines; ++i) {
    from[i] = operand.rows.at(line + std::min(i, lines - 1)) + k0;
    next[i] = operand.rows.at(line + std::min(i + F::kLines, lines - 1)) + k0;
  }
  constexpr int64_t kBlock = int64_t{kTransposeUnits<F::kUnitBytes>} * F::kGroup;
  constexpr int64_t kCacheLine = 64 / sizeof(typename F::Source);
  const int64_t whole = k_count / kBlock * kBlock;
  for (int64_t k = 0; k < whole; k += kBlock) {
    if (k % kCacheLine == 0) {
      for (int i = 0; i < F::kLines; ++i) __builtin_prefetch(next[i] + k);
    }
    transpose_units<F>(from, k, panel + k * F::kLines);
  }
  pack_tail<F>(panel, operand, line, std::min<int64_t>(lines, F::kLines), k0, whole, k_count);
}

// Rows are k: the lines of a group of rows are interleaved. All panels advance together by a few
// groups, enough to fill whole cache lines: panels are a power of two apart, so that lines half
// filled would push each other out of the first cache. Every row is read once from left to right.
template <typename F>
void pack_rows(typename F::Packed* panels, const Operand<const typename F::Source>& operand,
               int64_t line, int64_t lines, int64_t k0, int64_t k_count) {
  constexpr int kRows = kInterleaveRows<F::kGroup>;
  constexpr int64_t kCacheLine = 64 / sizeof(typename F::Source);
  constexpr int64_t kAhead = 8;  // rows
  const int64_t panel_elements = F::panel_elements(k_count);
  const int64_t whole = k_count / kRows * kRows;
  for (int64_t k = 0; k < whole; k += kRows) {
    const typename F::Source* from[kRows];
    const typename F::Source* next[kRows];
    for (int64_t i = 0; i < kRows; ++i) {
      from[i] = operand.rows.at(k0 + k + i) + line;
      next[i] = operand.rows.at(k0 + std::min(k + i + kAhead, k_count - 1)) + line;
    }
    for (int64_t i = 0; i < lines; i += kCacheLine) {
      for (int row = 0; row < kRows; ++row) __builtin_prefetch(next[row] + i);
    }
    typename F::Packed* to = panels + k * F::kLines;
    int64_t done = 0;
    for (; done + F::kLines <= lines; done += F::kLines, to += panel_elements) {
      for (int row = 0; row < kRows; row += F::kGroup) {
        interleave_rows<F>(from + row, done, to + row * F::kLines);
      }
    }
    if (done == lines) continue;
    for (int row = 0; row < kRows; row += F::kGroup) {
      interleave_rest<F>(from + row, done, lines - done, to + row * F::kLines);
    }
  }
  for (int64_t done = 0; done < lines; done += F::kLines, panels += panel_elements) {
    pack_tail<F>(panels, operand, line + done, std::min<int64_t>(lines - done, F::kLines), k0,
                 whole, k_count);
  }
}

// Lines [line, line + lines) and k [k0, k0 + k_count) into ceil(lines / kLines) panels.
template <typename F>
void pack(typename F::Packed* panels, const Operand<const typename F::Source>& operand,
          int64_t line, int64_t lines, int64_t k0, int64_t k_count) {
  if (!operand.rows_are_lines) {
    pack_rows<F>(panels, operand, line, lines, k0, k_count);
    return;
  }
  for (int64_t i = 0; i < lines; i += F::kLines) {
    pack_lines<F>(panels, operand, line + i, lines - i, k0, k_count);
    panels += F::panel_elements(k_count);
  }
}

}  // namespace
}  // namespace weft::WEFT_LEVEL
