// kernel/cuda/attention_tensor_dq.cu: gradient of the queries, and of the relative table on the
// way, in bf16 and fp16 with heads of up to 128.
//
// attention_gradient.h says what is computed, attention_tensor.h how. Where dS was kept,
// attention_tensor_kept.cu does this.
#include <algorithm>

#include "kernel/cuda/attention_diagonals.h"
#include "kernel/cuda/attention_gradient.h"
#include "kernel/cuda/attention_tensor.h"

namespace weft::cuda {
namespace {

template <int kHeadDim>
struct Sizes {
  static constexpr int kD = kHeadDim;
  static constexpr int kBlock = kD <= 64 ? 64 : 32;  // keys of a tile
  static constexpr int kStep = kDiagonalKeys;        // of them at a time
  static constexpr int kWarps = 4, kRows = 16 * kWarps, kThreads = 32 * kWarps;
  static constexpr int kBlocks = kD <= 96 ? 3 : 2;  // of threads on an SM
  static constexpr int kTile = kBlock * kD;
  // Two pairs of tiles; first the block's own rows of q and dout are there.
  static constexpr int kTiles = std::max(4 * kTile, 2 * kRows * kD);
  static constexpr int kOwnDout = kRows * kD;
  static constexpr size_t kShared = sizeof(uint16_t) * kTiles;
};

template <typename S, typename Copy, typename Value>
__device__ __forceinline__ void start_keys(Value* tiles, int pair, const Copy& k, const Copy& v,
                                           int key) {
  k.start(tiles, pair * 2 * S::kTile, key);
  v.start(tiles, (pair * 2 + 1) * S::kTile, key);
  close_group();
}

// The block's rows of q and dout as fragments of their warps.
template <typename S, typename Value>
__device__ __forceinline__ void load_queries(uint32_t (&q)[S::kD / 16][4],
                                             uint32_t (&dout)[S::kD / 16][4], Value* tiles, int b,
                                             int h, int first, int end, int warp_row,
                                             const Heads& heads,
                                             const GradientTensors<Value>& tensors) {
  using Copy = TileCopy<S::kD, S::kRows, S::kThreads, Value>;
  Copy(tensors.q.rows(b, h), end, heads).start(tiles, 0, first);
  Copy(tensors.dout.rows(b, h), end, heads).start(tiles, S::kOwnDout, first);
  close_group();
  wait_for_groups<0>();
  __syncthreads();
  load_own<S::kD>(q, tiles, 0, warp_row);
  load_own<S::kD>(dout, tiles, S::kOwnDout * 2, warp_row);
  __syncthreads();
}

template <typename Value, int kD, typename Score, typename Drop, typename Table>
__global__ void __launch_bounds__(Sizes<kD>::kThreads, Sizes<kD>::kBlocks)
    attention_tensor_dq_kernel(Heads heads, Score score, Drop drop, Table table,
                               GradientTensors<Value> tensors) {
  using S = Sizes<kD>;
  constexpr int kKeyTiles = S::kStep / 8;
  WEFT_DYNAMIC_SHARED(Value, tiles);
  const int warp = static_cast<int>(threadIdx.x) / 32, warp_row = warp * 16;

  const BlockPlace place = place_of_block();
  const int b = place.z, h = place.y;
  const int g = h / (heads.H / heads.G);
  // The last queries have the most work: they start first.
  const int tile = static_cast<int>(gridDim.x) - 1 - place.x, first = tile * S::kRows;
  const Side queries = heads.queries(b), keys = heads.keys(b);
  const int end = min(first + S::kRows, queries.length);

  const int lane = lane_of_warp(), warp_first = first + warp_row;
  const int query[2] = {warp_first + lane / 4, warp_first + lane / 4 + 8};
  const uint8_t* drawn = drop.head(b, h);
  float lse[2], delta[2], dq[kD / 8][4];
  clear(dq);
  auto sums = table.begin(reinterpret_cast<char*>(tiles) + S::kShared + warp * Table::kWarpBytes);
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    load_statistics(heads.statistic(b, h, query[half]), query[half] < end, tensors, &lse[half],
                    &delta[half]);
  }
  uint32_t q[kD / 16][4], dout[kD / 16][4];
  load_queries<S>(q, dout, tiles, b, h, first, end, warp_row, heads, tensors);

  int next = 0;
  for (int t = first; t < end; t = next) {  // one segment after the other
    const Segment at = Heads::segment(queries, keys, t, end);
    next = at.end;
    const Seen of_first = seen_keys(heads, at, t), of_last = seen_keys(heads, at, next - 1);
    const Seen seen[2] = {seen_keys(heads, at, query[0]), seen_keys(heads, at, query[1])};
    const Seen by_all =
        seen_by_all(seen_keys(heads, at, warp_first), seen_keys(heads, at, warp_first + 15));
    const int skipped = (of_first.begin - at.other_begin) / S::kBlock * S::kBlock;
    const int begin = at.other_begin + skipped;
    int walked = begin, pair = 0;
    const TileCopy<kD, S::kBlock, S::kThreads, Value> k(tensors.k.rows(b, g), of_last.end, heads),
        v(tensors.v.rows(b, g), of_last.end, heads);
    if (t > first) __syncthreads();  // the tiles may still be in use
    if (begin < of_last.end) start_keys<S>(tiles, 0, k, v, begin);
    for (int from = begin; from < of_last.end; from += S::kBlock, pair ^= 1) {
      wait_for_groups<0>();
      __syncthreads();
      if (from + S::kBlock < of_last.end) start_keys<S>(tiles, pair ^ 1, k, v, from + S::kBlock);
      if (warp_first + 15 < t || warp_first >= next) continue;
#pragma unroll 1
      for (int step = 0; step < S::kBlock; step += S::kStep) {
        const int key = from + step;
        if (heads.causal && warp_first + 15 + at.shift() < key) break;
        const TileBits kept = drop.template bits<true, kKeyTiles>(drawn, b, h, query[0], key);
        const int k_tile = (pair * 2 * S::kTile + step * kD) * 2;  // bytes
        float s[kKeyTiles][4], dp[kKeyTiles][4];
        clear(s);
        clear(dp);
        multiply_own<kD>(s, q, tiles, k_tile, heads.columns);
        multiply_own<kD>(dp, dout, tiles, k_tile + S::kTile * 2, heads.columns);
        const int distance = key - warp_first - at.shift();
        score_products<1>(s, score, score.line(h, distance + lane % 4 * 2 - lane / 4));
        if (!is_inside(by_all, key, S::kStep)) hide_unseen(s, key, seen);
        drop.template each<true, kKeyTiles>(kept, [&](int n, int i, bool is_kept, float factor) {
          const float p = exponential(Value{}, s[n][i] - lse[i / 2]);
          const float dropped = is_kept ? dp[n][i] * factor : 0.0f;
          s[n][i] = p * (dropped - delta[i / 2]) * score.scale;
        });
        uint32_t ds[kKeyTiles / 2][4];
        pack_weights<Value>(ds, s);
        if constexpr (Table::kWarpBytes > 0) {  // rounded, as where dS was kept
          unpack_fragments<Value>(s, ds);
          table.add(sums, s, distance);
        }
        walked = key + S::kStep;
        add_weighted<kD>(dq, ds, tiles, k_tile, heads.columns);
      }
    }
    table.end_walk(sums, walked - warp_first - at.shift());
  }
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    if (query[half] < heads.T) put_row(tensors.dq.at(b, query[half], h), dq, half, 0, heads);
  }
  table.write(sums, b * heads.H + h, tile * S::kWarps + warp);
}

// Of the kernel with this score: sums of the table where there may be one.
template <typename Score>
auto table_of(const AttentionBackwardArgs& args, const GradientWorkspace& workspace) {
  if constexpr (Score::kHasBias) {
    return diagonals_of(args, workspace.lines, workspace.partials);
  } else {
    return NoDiagonals{};
  }
}

}  // namespace

void tensor_attention_dq(const Context& context, const AttentionBackwardArgs& args,
                         const GradientWorkspace& workspace) {
  with_tensor_shape(args.dtype, args.D, [&](auto value, auto d) {
    using Value = decltype(value);
    using S = Sizes<d>;
    static_assert(S::kShared + S::kWarps * Diagonals::kWarpBytes <= kMostShared);
    const dim3 blocks(static_cast<unsigned>(ceil_div(args.T, S::kRows)),
                      static_cast<unsigned>(args.H), static_cast<unsigned>(args.B));
    static_assert(S::kRows == 64);  // diagonals_of counts on it
    with_score(args, workspace.lines, [&](auto score) {
      using Score = decltype(score);
      const auto table = table_of<Score>(args, workspace);
      using Table = std::remove_const_t<decltype(table)>;
      with_drawn<Score, true>(args, workspace.drawn, [&](auto drop) {
        launch(context, "attention: dq",
               attention_tensor_dq_kernel<Value, d, Score, decltype(drop), Table>, blocks,
               dim3(S::kThreads), S::kShared + static_cast<size_t>(S::kWarps * Table::kWarpBytes),
               gradient_heads<Value>(args), score, drop, table,
               gradient_tensors<Value>(args, workspace.delta));
      });
    });
  });
}

}  // namespace weft::cuda
