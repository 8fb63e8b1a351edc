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
        value = convert<typename F::Packed>(operand.rows_are_lines
                                                ? operand.rows.at(line + i)[k0 + k]
                                                : operand.rows.at(k0 + k)[line + i]);
      }
      group[i * F::kGroup] = value;
    }
  }
}

// Rows are lines: a transposition of units (a unit is one line's group of k).
template <typename F>
void pack_lines(typename F::Packed* panel, const Operand<const typename F::Source>& operand,
                int64_t line, int64_t lines, int64_t k0, int64_t k_count) {
  const typename F::Source* from[F::kLines];
  for (int64_t i = 0; i < F::kLines; ++i) {
    from[i] = operand.rows.at(line + std::min(i, lines - 1)) + k0;
  }
  constexpr int64_t kBlock = int64_t{kTransposeUnits<F::kUnitBytes>} * F::kGroup;
  const int64_t whole = k_count / kBlock * kBlock;
  for (int64_t k = 0; k < whole; k += kBlock) {
    transpose_units<F>(from, k, panel + k * F::kLines);
  }
  pack_tail<F>(panel, operand, line, lines, k0, whole, k_count);
}

// Rows are k: the lines of a group of rows are interleaved. All panels advance together, so that
// every row is read once from left to right.
template <typename F>
void pack_rows(typename F::Packed* panels, const Operand<const typename F::Source>& operand,
               int64_t line, int64_t lines, int64_t k0, int64_t k_count) {
  constexpr int64_t kBlock = int64_t{kInterleaveRows<F::kGroup>};
  const int64_t panel_elements = F::panel_elements(k_count);
  const int64_t whole = k_count / kBlock * kBlock;
  for (int64_t k = 0; k < whole; k += kBlock) {
    const typename F::Source* from[kBlock];
    for (int64_t i = 0; i < kBlock; ++i) from[i] = operand.rows.at(k0 + k + i) + line;
    typename F::Packed* to = panels + k * F::kLines;
    int64_t done = 0;
    for (; done + F::kLines <= lines; done += F::kLines, to += panel_elements) {
      for (int i = 0; i < F::kLines; i += kInterleaveLines<F::kGroup>) {
        interleave_rows<F>(from, done + i, to + i * F::kGroup);
      }
    }
    if (done == lines) continue;
    for (int64_t i = 0; i < F::kLines; i += kInterleaveLines<F::kGroup>) {
      if (done + i + kInterleaveLines<F::kGroup> <= lines) {
        interleave_rows<F>(from, done + i, to + i * F::kGroup);
      } else {
        interleave_rest<F>(from, done + i, lines, to + i * F::kGroup);
      }
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
    pack_lines<F>(panels, operand, line + i, std::min<int64_t>(F::kLines, lines - i), k0, k_count);
    panels += F::panel_elements(k_count);
  }
}

}  // namespace
}  // namespace weft::WEFT_LEVEL
