// kernel/cuda/attention_tensor_kept.cu: gradient of the queries, and of the relative table on the
// way, out of dS as the kernel of dk and dv kept it (attention_kept.h).
//
// dq = dS k, with keys in the order of attention_tensor_dq.cu. A warp reads its own tiles of dS.
#include <algorithm>

#include "kernel/cuda/attention_diagonals.h"
#include "kernel/cuda/attention_gradient.h"
#include "kernel/cuda/attention_tensor.h"
#include "kernel/cuda/attention_warpgroup.h"
#include "kernel/gpu/device_limits.h"

namespace weft::cuda {
namespace {

template <int kHeadDim, typename Table>
struct Sizes {
  static constexpr int kD = kHeadDim;
  static constexpr int kBlock = kDiagonalKeys;  // keys of a stage
  static constexpr int kColumns = kBlock / 16;
  // Lines of 16 queries of a warp, kWarps apart: what is read of the keys serves all of them.
  static constexpr int kLines = Table::kWarpBytes == 0 ? 2 : 1;
  static constexpr int kWarps = 4, kRows = 16 * kLines * kWarps, kThreads = 32 * kWarps;
  static constexpr int kBlocks = kD <= 64 || kLines == 1 ? 4 : 3;  // of threads on an SM
  static constexpr int kStages = 3;
  static constexpr int kKeys = kBlock * kTileColumns<kD, kBlock>,
                       kStage = kKeys + kRows * kBlock;  // elements
  static constexpr int kTableBytes = kWarps * Table::kWarpBytes;
  static constexpr size_t kShared = sizeof(uint16_t) * kStages * kStage + kTableBytes;
  static_assert(kShared <= kMostShared);
};

// A warp's tiles of dS of keys `key` .. + kBlock - 1 into shared memory; zeros where nothing is
// seen.
template <typename S, typename Value>
__device__ __forceinline__ void start_tiles(Value* to, const Kept& kept, int head, int line,
                                            int key, const Heads& heads, const Side& queries,
                                            const Side& keys) {
  const int lane = lane_of_warp();
#pragma unroll
  for (int i = 0; i < S::kLines * S::kColumns; ++i) {
    const int its_line = line + i / S::kColumns * S::kWarps, column = key / 16 + i % S::kColumns;
    const auto* from = reinterpret_cast<const Value*>(kept.tile(head, its_line, column));
    start_copy_or_zero(to + i * Kept::kTile + lane * 8, from + lane * 8,
                       sees(heads, queries, keys, its_line, column));
  }
}

template <typename Value, int kD, typename Table>
__global__ void __launch_bounds__(Sizes<kD, Table>::kThreads, Sizes<kD, Table>::kBlocks)
    attention_kept_dq_kernel(Heads heads, Kept kept, int first_group, Table table,
                             GradientTensors<Value> tensors) {
  using S = Sizes<kD, Table>;
  WEFT_ALIGNED_SHARED(Value, shared);
  const BlockPlace place = place_of_block();
  const int group = place.z + first_group;
  const int b = group / heads.G, g = group % heads.G, of_group = heads.H / heads.G;
  const int h = g * of_group + place.y, head = place.z * of_group + place.y;
  // The last queries have the most work: they start first.
  const int block = static_cast<int>(gridDim.x) - 1 - place.x, first = block * S::kRows;
  const Side queries = heads.queries(b), keys = heads.keys(b);
  const int end = min(first + S::kRows, queries.length);

  const int warp = static_cast<int>(threadIdx.x) / 32, lane = lane_of_warp();
  const int line = block * S::kWarps * S::kLines + warp, warp_first = line * 16;
  const int own = S::kKeys + warp * S::kLines * S::kColumns * Kept::kTile;  // of dS in a stage
  const int warp_last = warp_first + 16 * S::kWarps * (S::kLines - 1) + 15;
  float dq[S::kLines][kD / 8][4];
#pragma unroll
  for (int i = 0; i < S::kLines; ++i) clear(dq[i]);
  auto sums = table.begin(reinterpret_cast<char*>(shared + S::kStages * S::kStage) +
                          warp * Table::kWarpBytes);

  if (first < end) {
    const Segment all = {0, queries.length, 0, keys.length};
    const int begin = seen_keys(heads, all, first).begin / S::kBlock * S::kBlock;
    const int last = seen_keys(heads, all, end - 1).end;
    const TileCopy<kD, S::kBlock, S::kThreads, Value, S::kBlock> k(tensors.k.rows(b, g),
                                                                   keys.length, heads);
    const auto start = [&](int slot, int key) {
      if (key < last) {
        Value* stage = shared + slot * S::kStage;
        k.start(stage, 0, key);
        start_tiles<S>(stage + own, kept, head, line, key, heads, queries, keys);
      }
      close_group();
    };
#pragma unroll
    for (int stage = 0; stage < S::kStages - 1; ++stage) start(stage, begin + stage * S::kBlock);
    int slot = 0, walked = begin;
    for (int key = begin; key < last; key += S::kBlock) {
      wait_for_groups<S::kStages - 2>();
      show_to_products();
      __syncthreads();
      const int now = slot;
      slot = slot + 1 == S::kStages ? 0 : slot + 1;
      // Into the place of the stage before this one, which all warps have left.
      start(now == 0 ? S::kStages - 1 : now - 1, key + (S::kStages - 1) * S::kBlock);
      const bool is_seen = warp_first < end && (!heads.causal || warp_last >= key);
      if (!kTogether && !is_seen) continue;
      const Value* ds_tiles = shared + now * S::kStage + own + lane * 8;
      uint32_t ds[S::kLines][S::kColumns][4];
#pragma unroll
      for (int i = 0; i < S::kLines * S::kColumns; ++i) {
        load_matrices_transposed(ds[i / S::kColumns][i % S::kColumns], ds_tiles + i * Kept::kTile);
      }
      if (Table::kWarpBytes > 0 && is_seen) {
        float values[2 * S::kColumns][4];
        unpack_fragments<Value>(values, ds[0]);
        table.add(sums, values, key - warp_first);
        walked = key + S::kBlock;
      }
#pragma unroll
      for (int i = 0; i < S::kLines; ++i) pin(dq[i]);
      begin_products();
      add_all_weighted<kD, S::kBlock>(
          [&](int i) -> auto& { return dq[i]; }, ds, shared, now* S::kStage * 2, heads.columns);
      end_products();
#pragma unroll
      for (int i = 0; i < S::kLines; ++i) pin(dq[i]);
    }
    if (warp_first < end) table.end_walk(sums, walked - warp_first);
  }
#pragma unroll
  for (int i = 0; i < 2 * S::kLines; ++i) {
    const int query = warp_first + i / 2 * 16 * S::kWarps + i % 2 * 8 + lane / 4;
    if (query < heads.T) put_row(tensors.dq.at(b, query, h), dq[i / 2], i % 2, 0, heads);
  }
  table.write(sums, b * heads.H + h, line);
}

// Up to what whole tiles of 64 reach.
int64_t num_lines(int64_t positions) { return ceil_div(positions, 64) * 4; }
int64_t head_bytes(const AttentionOperands& args) {
  return num_lines(args.T) * num_lines(args.S) * Kept::kTile * 2;
}

}  // namespace

size_t kept_bytes(const AttentionBackwardArgs& args) {
  if (!uses_tensor_kernels(args)) return 0;
  return static_cast<size_t>(std::min(args.B * args.H * head_bytes(args), kMostKeptBytes));
}

int64_t kept_groups(const AttentionBackwardArgs& args) {
  if (args.positions || args.source_positions) return 0;
  const int64_t all = args.B * args.G;
  const int64_t most =
      std::min({all, kMostKeptBytes / (args.H / args.G * head_bytes(args)), kMostGridRows});
  return most == 0 ? 0 : ceil_div(all, ceil_div(all, most));  // as even as possible
}

Kept kept_at(const AttentionBackwardArgs& args, std::byte* memory) {
  return {reinterpret_cast<uint16_t*>(memory), static_cast<int>(num_lines(args.T)),
          static_cast<int>(num_lines(args.S))};
}

void tensor_attention_kept_dq(const Context& context, const AttentionBackwardArgs& args,
                              const GradientWorkspace& workspace, const Groups& groups) {
  with_tensor_shape(args.dtype, args.D, [&](auto value, auto d) {
    using Value = decltype(value);
    const auto start = [&](const auto& table) {
      using Table = std::remove_cvref_t<decltype(table)>;
      using S = Sizes<d, Table>;
      const dim3 blocks(static_cast<unsigned>(ceil_div(args.T, S::kRows)),
                        static_cast<unsigned>(args.H / args.G),
                        static_cast<unsigned>(groups.count));
      launch(context, "attention: dq", attention_kept_dq_kernel<Value, d, Table>, blocks,
             dim3(S::kThreads), S::kShared, gradient_heads<Value>(args), workspace.kept,
             groups.first, table, gradient_tensors<Value>(args, workspace.delta));
    };
    if (args.dtable) {
      start(diagonals_of(args, workspace.lines, workspace.partials));
    } else {
      start(NoDiagonals{});
    }
  });
}

}  // namespace weft::cuda
