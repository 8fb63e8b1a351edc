// kernel/cpu/level/gemm_plan.h: how a product is cut into blocks, tasks and scratch memory.
//
// One factor is packed once per block and shared by all threads (it rests in the shared cache);
// each task packs its own piece of the other into the thread's private cache. Long M shares B and
// cuts M among the tasks; short M shares A and cuts N. Where K takes several blocks the sums of the
// whole (m_block, n_block) stay in scratch memory as fp32 tiles, whose size bounds both. No choice
// made here changes a bit of the result.
#pragma once

#include <algorithm>

#include "kernel/cpu/level/gemm_operand.h"

namespace weft::WEFT_LEVEL {
namespace {

inline constexpr int64_t kSharedBytes = 2 << 20;
inline constexpr int64_t kPrivateBytes = 256 << 10;
inline constexpr int64_t kPartialBytes = 4 << 20;
inline constexpr int64_t kShortM = 128;

struct Plan {
  bool share_b;
  int64_t m_block, n_block, k_block;
  int64_t task_lines;  // of the factor that is not shared
  size_t shared_bytes, private_bytes, bias_bytes, partial_bytes;
};

template <typename Tile>
Plan make_plan(const GemmArgs& args, int num_threads) {
  constexpr int64_t kBytes = sizeof(typename Tile::Packed);
  const auto padded = [](int64_t v, int64_t step) { return std::max(round_up(v, step), step); };
  const auto aligned = [](int64_t bytes) { return static_cast<size_t>(round_up(bytes, 64)); };
  const int64_t m_all = padded(args.M, Tile::kMr), n_all = padded(args.N, Tile::kNr);
  Plan plan{};
  // Blocks of k of nearly one size; 32 is a multiple of every tile's step.
  const int64_t k_blocks = ceil_div(padded(args.K, 1), Tile::kMaxK);
  plan.k_block = round_up(ceil_div(padded(args.K, 1), k_blocks), 32);
  const int64_t line_bytes = plan.k_block * kBytes;

  plan.share_b = args.M > kShortM || args.M >= args.N;
  const int64_t shared_step = plan.share_b ? Tile::kNr : Tile::kMr;
  const int64_t other_step = plan.share_b ? Tile::kMr : Tile::kNr;
  const int64_t shared_all = plan.share_b ? n_all : m_all;
  const int64_t other_all = plan.share_b ? m_all : n_all;

  const int64_t shared_blocks = ceil_div(shared_all * line_bytes, kSharedBytes);
  const int64_t shared = padded(ceil_div(shared_all, shared_blocks), shared_step);
  int64_t other = other_all;
  if (args.K > plan.k_block) {
    const int64_t blocks = ceil_div(shared * other_all * 4, kPartialBytes);
    other = padded(ceil_div(other_all, blocks), other_step);
    plan.partial_bytes = aligned(shared * other * 4);
  }
  plan.m_block = plan.share_b ? other : shared;
  plan.n_block = plan.share_b ? shared : other;

  // At least four tasks per thread where the block allows it, and equally many for each: the
  // slowest one decides.
  const int64_t most = std::max(kPrivateBytes / line_bytes / other_step, int64_t{1}) * other_step;
  const int64_t tasks =
      round_up(std::max(ceil_div(other, most), int64_t{4} * num_threads), num_threads);
  plan.task_lines = std::min(most, padded(ceil_div(other, tasks), other_step));
  plan.shared_bytes = aligned(shared * line_bytes);
  plan.private_bytes = aligned(plan.task_lines * line_bytes);
  plan.bias_bytes = aligned(plan.n_block * 4);
  return plan;
}

// Scratch memory for this product and every one that is no larger in any extent or in the number of
// threads: a caller allocates once for its largest. (A plan's own sizes do not fall with the
// extents: which factor is shared, and how evenly blocks come out, changes from shape to shape.)
template <typename Tile>
size_t workspace_bound(const GemmArgs& args, int num_threads) {
  constexpr int64_t kBytes = sizeof(typename Tile::Packed);
  constexpr int64_t kStep = std::max<int64_t>(Tile::kMr, Tile::kNr);
  const int64_t lines = std::max(round_up(args.M, kStep), round_up(args.N, kStep)) + kStep;
  const int64_t line_bytes =
      round_up(std::min<int64_t>(std::max<int64_t>(args.K, 1), Tile::kMaxK), 32) * kBytes;
  const int64_t shared = std::min(lines * line_bytes, kSharedBytes + kStep * line_bytes);
  const int64_t own = std::min(lines * line_bytes, std::max(kPrivateBytes, kStep * line_bytes));
  int64_t sums = 0;
  if (args.K > Tile::kMaxK) {
    // Two blocks of k or more: a line is then at least half of the longest.
    const int64_t shared_lines = std::min(lines, kSharedBytes / (Tile::kMaxK / 2 * kBytes) + kStep);
    sums = std::min(lines * shared_lines * 4, kPartialBytes + shared_lines * kStep * 4);
  }
  const int64_t total = shared + round_up(args.N, kStep) * 4 + sums + own * num_threads;
  return static_cast<size_t>(total) + 64 * static_cast<size_t>(4 + num_threads);  // each aligned
}

}  // namespace
}  // namespace weft::WEFT_LEVEL
