// kernel/cpu/level/gemm.cpp: the matrix product, blocked for caches and registers.
//
// Loops, outermost first: blocks of M, blocks of N, blocks of K (gemm_plan.h); in a block one
// factor is packed by all threads together, then tasks take pieces of the other; in a task every
// panel of B meets every panel of A in a register tile (gemm_tile.h). The panel of B stays in the
// first cache meanwhile and the task's panels of A stream from the second.
#include "kernel/cpu/level/gemm_few_rows.h"
#include "kernel/cpu/level/gemm_pack.h"
#include "kernel/cpu/level/gemm_plan.h"
#include "kernel/cpu/level/gemm_store.h"
#include "kernel/cpu/level/gemm_tile.h"
#include "kernel/cpu/level/ops.h"
#include "kernel/cpu/workspace.h"

namespace weft::WEFT_LEVEL {
namespace {

template <typename Tile, typename Source, typename Out>
class Product {
  using Packed = typename Tile::Packed;
  using FormatA = Format<Source, Packed, Tile::kMr, Tile::kGroupA, Tile::kStep>;
  using FormatB = Format<Source, Packed, Tile::kNr, Tile::kGroupB, Tile::kStep>;

 public:
  Product(const Context& context, const GemmArgs& args)
      : pool_(*context.pool),
        args_(args),
        plan_(make_plan<Tile>(args, context.pool->num_threads())),
        a_(left_operand<Source>(args)),
        b_(right_operand<Source>(args)),
        sink_(make_sink<Out>(args)) {
    const size_t own = plan_.private_bytes * static_cast<size_t>(pool_.num_threads());
    check_workspace("gemm",
                    plan_.shared_bytes + plan_.bias_bytes + plan_.partial_bytes + own + kReadPast,
                    context.workspace_bytes);
    std::byte* at = context.workspace;
    shared_ = reinterpret_cast<Packed*>(at);
    bias_ = reinterpret_cast<float*>(at += plan_.shared_bytes);
    partial_ = reinterpret_cast<float*>(at += plan_.bias_bytes);
    private_ = at + plan_.partial_bytes;
    for (const void* bias : args.bias) has_bias_ = has_bias_ || bias != nullptr;
    plain_ = !has_bias_ && !args.accumulate && args.num_addends == 0;
  }

  void run() {
    for (int64_t m = 0; m < args_.M; m += plan_.m_block) {
      for (int64_t n = 0; n < args_.N; n += plan_.n_block) {
        const Block block{
            m, std::min(plan_.m_block, args_.M - m), n, std::min(plan_.n_block, args_.N - n), 0, 0};
        run_block(block);
      }
    }
  }

 private:
  struct Block {
    int64_t m, rows, n, cols, k, k_count;
  };

  void run_block(Block block) {
    if (has_bias_) gather_bias(block);
    do {  // once even where K is 0: C is then bias, or C
      block.k_count = std::min(plan_.k_block, args_.K - block.k);
      pack_shared(block);
      const int64_t lines = plan_.share_b ? block.rows : block.cols;
      pool_.run(ceil_div(lines, plan_.task_lines), [&](int64_t task, int thread) {
        const int64_t first = task * plan_.task_lines;
        run_task(block, first, std::min(plan_.task_lines, lines - first), thread);
      });
      block.k += block.k_count;
    } while (block.k < args_.K);
  }

  void gather_bias(const Block& block) {
    if (!args_.b_transposed) {  // the parts of B are rows: one bias for all columns
      const Source* bias = static_cast<const Source*>(args_.bias[0]);
      for (int64_t j = 0; j < block.cols; ++j) bias_[j] = to_float(bias[block.n + j]);
      return;
    }
    int64_t n = 0;
    for (int part = 0; part < args_.b.count; ++part) {
      const Source* bias = static_cast<const Source*>(args_.bias[part]);
      for (int64_t i = 0; i < args_.b.rows[part]; ++i, ++n) {
        if (n < block.n || n >= block.n + block.cols) continue;
        bias_[n - block.n] = bias ? to_float(bias[i]) : 0.0f;
      }
    }
  }

  void pack_shared(const Block& block) {
    const int64_t step = plan_.share_b ? FormatB::kLines : FormatA::kLines;
    const int64_t lines = plan_.share_b ? block.cols : block.rows;
    const int64_t panels = ceil_div(lines, step);
    const int64_t panels_a_task = ceil_div(panels, int64_t{4} * pool_.num_threads());
    pool_.run(ceil_div(panels, panels_a_task), [&](int64_t task, int) {
      const int64_t panel = task * panels_a_task;
      const int64_t first = panel * step;
      const int64_t count = std::min(panels_a_task * step, lines - first);
      if (plan_.share_b) {
        Packed* to = shared_ + panel * FormatB::panel_elements(block.k_count);
        pack<FormatB>(to, b_, block.n + first, count, block.k, block.k_count);
      } else {
        Packed* to = shared_ + panel * FormatA::panel_elements(block.k_count);
        pack<FormatA>(to, a_, block.m + first, count, block.k, block.k_count);
      }
    });
  }

  // Lines [first, first + count) of the factor that is not shared, against all of the other.
  void run_task(const Block& block, int64_t first, int64_t count, int thread) {
    Tile::prepare();
    Packed* own =
        reinterpret_cast<Packed*>(private_ + static_cast<size_t>(thread) * plan_.private_bytes);
    if (plan_.share_b) {
      pack<FormatA>(own, a_, block.m + first, count, block.k, block.k_count);
      multiply(block, own, first, count, shared_, 0, block.cols);
    } else {
      pack<FormatB>(own, b_, block.n + first, count, block.k, block.k_count);
      multiply(block, shared_, 0, block.rows, own, first, count);
    }
  }

  // Rows [row, row + rows) and columns [col, col + cols) of the block, from packed panels.
  void multiply(const Block& block, const Packed* a, int64_t row, int64_t rows, const Packed* b,
                int64_t col, int64_t cols) {
    constexpr int64_t kMr = Tile::kMr, kNr = Tile::kNr;
    const int64_t k_padded = round_up(block.k_count, Tile::kStep);
    const bool first = block.k == 0, last = block.k + block.k_count == args_.K;
    const int64_t tiles_down = ceil_div(plan_.m_block, kMr);
    alignas(64) float own_tile[kMr * kNr];
    // While a panel of B is in use the next one is prefetched, a piece with each tile: it comes
    // from the shared cache, and fetching it at once would cost 5 %. A task's own panels are near.
    const int64_t panel_bytes = k_padded * kNr * static_cast<int64_t>(sizeof(Packed));
    const int64_t piece =
        plan_.share_b ? round_up(ceil_div(panel_bytes, ceil_div(rows, kMr)), 64) : 0;
    for (int64_t j = 0; j < cols; j += kNr, b += k_padded * kNr) {
      const Packed* panel = a;
      const std::byte* next = reinterpret_cast<const std::byte*>(b) + panel_bytes;
      for (int64_t i = 0; i < rows; i += kMr, panel += k_padded * kMr) {
        const int64_t index = (col + j) / kNr * tiles_down + (row + i) / kMr;
        float* tile = first && last ? own_tile : partial_ + index * kMr * kNr;
        const int64_t m = block.m + row + i, n = block.n + col + j;
        const int64_t tile_rows = std::min(kMr, rows - i), tile_cols = std::min(kNr, cols - j);
        for (int64_t byte = 0; byte < piece; byte += 64) __builtin_prefetch(next + byte, 0, 2);
        next += piece;
        if constexpr (kStoresC<Tile, Out>) {
          Out* c = last && plain_ && tile_cols == kNr && tile_rows == kMr ? rows_at(m) : nullptr;
          if (c) {
            Tile::multiply_into(k_padded, panel, b, tile, !first, c + n, sink_.rows.ld);
            continue;
          }
        }
        Tile::multiply(k_padded, panel, b, tile, !first);
        if (!last) continue;
        store_tile<Tile::kNr>(sink_, tile, m, tile_rows, n, tile_cols,
                              has_bias_ ? bias_ + col + j : nullptr);
      }
    }
  }

  // Rows m to m + kMr of C, or null where they are not in one part of the stack.
  Out* rows_at(int64_t m) const {
    Out* c = sink_.rows.at(m);
    return sink_.rows.at(m + Tile::kMr - 1) == c + (Tile::kMr - 1) * sink_.rows.ld ? c : nullptr;
  }

  ThreadPool& pool_;
  const GemmArgs& args_;
  const Plan plan_;
  const Operand<const Source> a_, b_;
  const Sink<Out> sink_;
  bool has_bias_ = false;
  bool plain_;  // C is the product alone
  Packed* shared_;
  float* bias_;
  float* partial_;
  std::byte* private_;
};

template <typename Tile, typename Source, typename Out>
void run_into(const Context& context, const GemmArgs& args) {
#if defined(__aarch64__)
  if constexpr (kHasLines<Source>) {
    if (suits_few_rows<Source>(args)) return FewRows<Source, Out>(context, args).run();
  }
#endif
  Product<Tile, Source, Out>(context, args).run();
}

template <typename Tile, typename Source>
void run_product(const Context& context, const GemmArgs& args) {
  if (args.c_dtype == Dtype::kBf16) {
    run_into<Tile, Source, Bf16>(context, args);
  } else {
    run_into<Tile, Source, float>(context, args);
  }
}

}  // namespace

void gemm(const Context& context, const GemmArgs& args) {
  if (args.dtype == Dtype::kBf16) {
    run_product<TileForBf16, Bf16>(context, args);
  } else {
    run_product<FloatTile, float>(context, args);
  }
}

size_t gemm_workspace(const GemmArgs& args, int num_threads) {
  // At levels without a bf16 tile the two are the same.
  const size_t packed = args.dtype == Dtype::kBf16 ? workspace_bound<TileForBf16>(args, num_threads)
                                                   : workspace_bound<FloatTile>(args, num_threads);
#if defined(__aarch64__)
  return std::max(packed + kReadPast, few_rows_workspace(args, num_threads));
#else
  return packed + kReadPast;
#endif
}

}  // namespace weft::WEFT_LEVEL
