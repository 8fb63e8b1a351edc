// kernel/cuda/attention_dq.cu: gradient of the queries, and of the relative table on the way.
#include <type_traits>

#include "kernel/cuda/attention.h"
#include "kernel/cuda/attention_dropout.h"
#include "kernel/cuda/attention_gradient.h"
#include "kernel/cuda/attention_score.h"
#include "kernel/cuda/attention_table.h"

namespace weft::cuda {
namespace {

// products of queries with keys `key` .. -> dS; dp: dout·v.
template <typename Value, int kTiles, typename Score, typename Drop>
__device__ __forceinline__ void differentiate_rows(float (&products)[kTiles][4],
                                                   const float (&dp)[kTiles][4], const Score& score,
                                                   const Drop& drop, uint32_t kept, int h, int key,
                                                   const int (&query)[2], int shift,
                                                   const Seen (&seen)[2], const float (&lse)[2],
                                                   const float (&delta)[2]) {
#pragma unroll
  for (int n = 0; n < kTiles; ++n) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int j = key + n * 8 + lane_of_warp() % 4 * 2 + i % 2;
      const float dropped = drop(dp[n][i], kept, n, i);
      products[n][i] = differentiate<Value>(score, products[n][i], h, j - query[i / 2] - shift,
                                            seen[i / 2](j), lse[i / 2], dropped, delta[i / 2])
                           .ds;
    }
  }
}

template <typename Value, int kD, typename Score, typename Drop, typename Table>
__global__ void __launch_bounds__(Backward<Value, kD>::kThreads)
    attention_dq_kernel(Heads heads, Score score, Drop drop, Table table, int table_bytes,
                        GradientTensors<Value> tensors) {
  using K = Backward<Value, kD>;
  constexpr int kTiles = kD / 8, kKeyTiles = K::kBlock / 8;
  WEFT_DYNAMIC_SHARED(Value, shared);
  const GradientTiles<K, Value> tiles(shared);  // own: q, dout; other: k, v
  const int warp = static_cast<int>(threadIdx.x) / 32;
  char* memory = reinterpret_cast<char*>(shared) + K::kShared + warp * table_bytes;

  const int b = static_cast<int>(blockIdx.z), h = static_cast<int>(blockIdx.y);
  const int g = h / (heads.H / heads.G);
  // The last queries have the most work: they start first.
  const int tile = static_cast<int>(gridDim.x - 1 - blockIdx.x), first = tile * K::kRows;
  const Side queries = heads.queries(b), keys = heads.keys(b);
  const int end = min(first + K::kRows, queries.length);
  const Rows<Value> k = tensors.k.rows(b, g), v = tensors.v.rows(b, g);

  const int lane = lane_of_warp(), warp_row = warp * 16, warp_first = first + warp_row;
  const int query[2] = {warp_first + lane / 4, warp_first + lane / 4 + 8};
  const Value *warp_q = tiles.own[0] + warp_row * K::kLd,
              *warp_dout = tiles.own[1] + warp_row * K::kLd;
  Value* warp_ds = tiles.weights + warp_row * K::kWeightLd;
  const auto drop_key = drop.head(b, h);
  float lse[2], delta[2], dq[kTiles][4];
  clear(dq);
  table.template begin<K::kBlock>(memory);
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    load_statistics(heads.statistic(b, h, query[half]), query[half] < end, tensors, &lse[half],
                    &delta[half]);
  }
  load_tile<K::kLd>(tiles.own[0], tensors.q.rows(b, h), first, K::kRows, end, heads);
  load_tile<K::kLd>(tiles.own[1], tensors.dout.rows(b, h), first, K::kRows, end, heads);

  int next = 0;
  for (int t = first; t < end; t = next) {  // one segment after the other
    const Segment at = Heads::segment(queries, keys, t, end);
    next = at.end;
    const Seen of_first = seen_keys(heads, at, t), of_last = seen_keys(heads, at, next - 1);
    const Seen seen[2] = {seen_keys(heads, at, query[0]), seen_keys(heads, at, query[1])};
    const int skipped = (of_first.begin - at.other_begin) / K::kBlock * K::kBlock;
    for (int key = at.other_begin + skipped; key < of_last.end; key += K::kBlock) {
      __syncthreads();
      load_tile<K::kLd>(tiles.other[0], k, key, K::kBlock, of_last.end, heads);
      load_tile<K::kLd>(tiles.other[1], v, key, K::kBlock, of_last.end, heads);
      __syncthreads();
      if (warp_first + 15 < t || warp_first >= next) continue;
      if (heads.causal && warp_first + 15 + at.shift() < key) continue;
      float s[kKeyTiles][4], dp[kKeyTiles][4];
      clear(s);
      clear(dp);
      multiply_rows(s, warp_q, K::kLd, tiles.other[0], K::kLd, heads.columns);
      multiply_rows(dp, warp_dout, K::kLd, tiles.other[1], K::kLd, heads.columns);
      const uint32_t kept = drop.template kept<true, kKeyTiles>(drop_key, query[0], key);
      differentiate_rows<Value>(s, dp, score, drop, kept, h, key, query, at.shift(), seen, lse,
                                delta);
      put_tile(warp_ds, K::kWeightLd, s);
      __syncwarp();
      table.template add<K::kBlock>(warp_ds, K::kWeightLd, key - warp_first - at.shift(), memory);
      multiply_columns<K::kBlock>(dq, warp_ds, K::kWeightLd, tiles.other[0], K::kLd, heads.columns);
      __syncwarp();
    }
  }
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    if (query[half] < heads.T) put_row(tensors.dq.at(b, query[half], h), dq, half, 0, heads);
  }
  table.template write<K::kBlock>(b * heads.H + h, tile * K::kWarps + warp, memory);
}

// Of the kernel with this score: sums of the table where there may be one.
template <typename Score>
auto table_of(const AttentionBackwardArgs& args, int64_t parts, float* partials) {
  if constexpr (Score::kHasBias) {
    return TableSums{args.bias.buckets, args.dtable ? partials : nullptr, static_cast<int>(parts)};
  } else {
    return NoTable{};
  }
}

}  // namespace

void builtin_attention_dq(const Context& context, const AttentionBackwardArgs& args,
                          const GradientWorkspace& workspace) {
  with_attention_shape(args.dtype, args.D, [&](auto value, auto d) {
    using Value = decltype(value);
    using K = Backward<Value, d>;
    static_assert(K::kShared + K::kWarps * TableSums::warp_bytes<K::kBlock>(kMostDeviceBuckets) <=
                  kMostShared);
    const int64_t tiles = ceil_div(args.T, K::kRows), parts = tiles * K::kWarps;
    const dim3 blocks(static_cast<unsigned>(tiles), static_cast<unsigned>(args.H),
                      static_cast<unsigned>(args.B));
    with_score(args, workspace.lines, [&](auto score) {
      using Score = decltype(score);
      const auto table = table_of<Score>(args, parts, workspace.partials);
      using Table = std::remove_const_t<decltype(table)>;
      const int bytes = Table::template warp_bytes<K::kBlock>(table.num_buckets());
      with_maybe_dropout<Score>(args.dropout, [&](auto drop) {
        launch(context, "attention: dq",
               attention_dq_kernel<Value, d, Score, decltype(drop), Table>, blocks,
               dim3(K::kThreads), K::kShared + static_cast<size_t>(K::kWarps * bytes),
               gradient_heads<Value>(args), score, drop, table, bytes,
               gradient_tensors<Value>(args, workspace.delta));
      });
    });
    if (args.dtable) add_bias_partials(context, args, parts, workspace.partials);
  });
}

}  // namespace weft::cuda
