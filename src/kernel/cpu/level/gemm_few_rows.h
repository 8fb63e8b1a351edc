// kernel/cpu/level/gemm_few_rows.h: a product of a few rows of A, as generation needs it, on ARM.
//
// Packed panels of B pay off where a panel is used by many rows. With a few rows the weights are
// read once, from where they are, straight into registers, and only A is packed (by every thread
// for itself: that takes less time than to wait for each other). An element's chain is the tile's:
// one multiply-add per step of k, in order.
//
// Every thread has a region of consecutive columns and takes blocks of it, so that what it
// prefetches is what it will use; when it has finished it helps the others.
#pragma once

#include <algorithm>
#include <type_traits>

#include "kernel/cpu/level/gemm_store.h"
#include "kernel/cpu/level/gemm_tile.h"
#include "kernel/cpu/workspace.h"

#if defined(__aarch64__)

#include "kernel/cpu/level/gemm_lines_neon.h"
#if defined(WEFT_LEVEL_neon_bf16)
#include "kernel/cpu/level/gemm_lines_bf16.h"
#endif

namespace weft::WEFT_LEVEL {
namespace {

inline constexpr int64_t kFewRows = 32;
inline constexpr int64_t kGroupRows = 16;         // whose sums fit the registers
inline constexpr int64_t kFewRowsMaxK = 1 << 14;  // bounds the copies of A
inline constexpr int64_t kPrefetchBytes = 16 << 10;

// The lines that the tile of a level takes of a type; void: it has none.
template <typename Source>
struct LinesOf {
  using Type = void;
};
template <>
struct LinesOf<float> {
  using Type = FloatLines;
};
#if defined(WEFT_LEVEL_neon_bf16)
template <>
struct LinesOf<Bf16> {
  using Type = Bf16Lines;
};
#endif

template <typename Source>
inline constexpr bool kHasLines = !std::is_void_v<typename LinesOf<Source>::Type>;

template <typename Source>
bool suits_few_rows(const GemmArgs& args) {
  return args.M <= kFewRows && args.M > 0 && args.N > 0 && args.b_transposed &&
         !args.a_transposed && args.K > 0 && args.K <= kFewRowsMaxK &&
         args.K % LinesOf<Source>::Type::kStep == 0;
}

// Blocks of columns that a thread is to take; others may. As long as a cache line.
struct Region {
  int64_t next, end;
  int64_t has_packed;  // whether the thread of this number has packed its A
  int64_t unused[5];
};

inline int64_t few_rows_copy(int64_t rows, int64_t K) {
  return round_up(round_up(std::min(rows, kFewRows), kGroupRows) * K * 4, 64);
}

// For this product and every smaller one.
inline size_t few_rows_workspace(const GemmArgs& args, int num_threads) {
  const int64_t K = std::min(args.K, kFewRowsMaxK);
  const int64_t one = few_rows_copy(args.M, K) + static_cast<int64_t>(sizeof(Region));
  return static_cast<size_t>(one * num_threads);
}

template <typename Source, typename Out>
class FewRows {
  using Lines = typename LinesOf<Source>::Type;

 public:
  FewRows(const Context& context, const GemmArgs& args)
      : pool_(*context.pool),
        args_(args),
        b_(stacked_rows<const Source>(args.b)),
        sink_(make_sink<Out>(args)),
        regions_(reinterpret_cast<Region*>(context.workspace)),
        copies_(context.workspace + pool_.num_threads() * static_cast<int64_t>(sizeof(Region))) {
    check_workspace("gemm", few_rows_workspace(args, pool_.num_threads()), context.workspace_bytes);
    for (const void* bias : args.bias) has_bias_ = has_bias_ || bias != nullptr;
  }

  void run() const {
    const int64_t threads = pool_.num_threads(), blocks = ceil_div(args_.N, kBlockLines);
    for (int64_t i = 0; i < threads; ++i)
      regions_[i] = {blocks * i / threads, blocks * (i + 1) / threads, 0, {}};
    const int64_t together = std::clamp<int64_t>(blocks / (16 * threads), 1, 8);
    pool_.run(threads, [&](int64_t, int thread) {
      for (int64_t i = 0; i < threads; ++i) {
        Region& region = regions_[(thread + i) % threads];
        for (;;) {
          const int64_t first = __atomic_fetch_add(&region.next, together, __ATOMIC_RELAXED);
          if (first >= region.end) break;
          run_blocks(first, std::min(first + together, region.end), thread);
        }
      }
    });
  }

 private:
  void run_blocks(int64_t first, int64_t end, int64_t thread) const {
    auto* a = reinterpret_cast<Source*>(copies_ + thread * few_rows_copy(args_.M, args_.K));
    if (regions_[thread].has_packed == 0) {
      prefetch_first(b_.at(first * kBlockLines));
      pack(a);
      regions_[thread].has_packed = 1;
    }
    for (int64_t block = first; block < end; ++block) columns(a, block * kBlockLines);
  }

  // What no block before fetches.
  void prefetch_first(const Source* b) const {
    const auto* at = reinterpret_cast<const std::byte*>(b);
    const int64_t block = kBlockLines * args_.K * static_cast<int64_t>(sizeof(Source));
    for (int64_t i = 0; i < block + kPrefetchBytes; i += 64) __builtin_prefetch(at + i, 0, 2);
  }

  void pack(Source* to) const {
    for (int64_t m = 0; m < args_.M; m += kGroupRows, to += kGroupRows * args_.K) {
      const int64_t rows = std::min(kGroupRows, args_.M - m);
      Lines::pack(static_cast<const Source*>(args_.a) + m * args_.lda, args_.lda, rows,
                  Lines::padded(rows), args_.K, to);
    }
  }

  // Columns n and following. Past the last one its line is read again, and the result is dropped.
  void columns(const Source* a, int64_t n) const {
    const int64_t count = std::min<int64_t>(kBlockLines, args_.N - n);
    LineBlock<Source> lines;
    if (n + kBlockLines <= b_.end[0]) {  // all in the first part of the stack, mostly the only one
      for (int64_t i = 0; i < kBlockLines; ++i) lines.line[i] = b_.part[0] + (n + i) * b_.ld;
    } else {
      for (int64_t i = 0; i < kBlockLines; ++i) lines.line[i] = b_.at(n + std::min(i, count - 1));
    }
    constexpr auto kAhead = kPrefetchBytes / static_cast<int64_t>(sizeof(Source));
    lines.later = lines.line[0] + kBlockLines * args_.K + kAhead;
    float bias[kBlockLines];
    if (has_bias_) gather_bias(n, count, bias);
    for (int64_t m = 0; m < args_.M; m += kGroupRows, a += kGroupRows * args_.K) {
      const int64_t rows = std::min(kGroupRows, args_.M - m);
      alignas(64) float tile[kGroupRows * kBlockLines];
      multiply(rows, a, lines, tile);
      store_tile<kBlockLines>(sink_, tile, m, rows, n, count, has_bias_ ? bias : nullptr);
    }
  }

  void multiply(int64_t rows, const Source* a, const LineBlock<Source>& lines, float* tile) const {
    switch (Lines::padded(rows)) {
      case 2:
        if constexpr (requires { Lines::template multiply<2>; })
          return Lines::template multiply<2>(a, lines, args_.K, tile);
        break;
      case 4:
        return Lines::template multiply<4>(a, lines, args_.K, tile);
      case 8:
        return Lines::template multiply<8>(a, lines, args_.K, tile);
      default:
        return Lines::template multiply<16>(a, lines, args_.K, tile);
    }
  }

  void gather_bias(int64_t n, int64_t count, float* to) const {
    int64_t begin = 0;
    for (int part = 0; part < args_.b.count; ++part) {
      const auto* bias = static_cast<const Source*>(args_.bias[part]);
      const int64_t end = begin + args_.b.rows[part];
      for (int64_t i = std::max(n, begin); i < std::min(n + count, end); ++i)
        to[i - n] = bias ? to_float(bias[i - begin]) : 0.0f;
      begin = end;
    }
  }

  ThreadPool& pool_;
  const GemmArgs& args_;
  const Rows<const Source> b_;
  const Sink<Out> sink_;
  Region* regions_;    // of every thread
  std::byte* copies_;  // of A, of every thread
  bool has_bias_ = false;
};

}  // namespace
}  // namespace weft::WEFT_LEVEL

#endif
