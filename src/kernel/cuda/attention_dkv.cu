// kernel/cuda/attention_dkv.cu: gradients of keys and values.
//
// Rows are keys here, so all is transposed: s[key, query].
#include "kernel/cuda/attention.h"
#include "kernel/cuda/attention_dropout.h"
#include "kernel/cuda/attention_gradient.h"
#include "kernel/cuda/attention_score.h"

namespace weft::cuda {
namespace {

// A block of queries up to `end`, by all threads.
template <typename K, typename Value>
__device__ void load_queries(Value* q_tile, Value* dout_tile, float* lse, float* delta, int b,
                             int h, int query, int end, const Heads& heads,
                             const GradientTensors<Value>& tensors) {
  load_tile<K::kLd>(q_tile, tensors.q.rows(b, h), query, K::kBlock, end, heads);
  load_tile<K::kLd>(dout_tile, tensors.dout.rows(b, h), query, K::kBlock, end, heads);
  for (int i = static_cast<int>(threadIdx.x); i < K::kBlock; i += K::kThreads) {
    load_statistics(heads.statistic(b, h, query + i), query + i < end, tensors, &lse[i], &delta[i]);
  }
}

// products of keys with queries `query` .. -> P M; dp: v·dout -> dS.
template <typename Value, int kTiles, typename Score, typename Drop>
__device__ __forceinline__ void differentiate_columns(float (&products)[kTiles][4],
                                                      float (&dp)[kTiles][4], const Score& score,
                                                      const Drop& drop, uint32_t kept, int h,
                                                      int query, const int (&key)[2], int shift,
                                                      const Seen (&seen)[2], const float* lse,
                                                      const float* delta) {
#pragma unroll
  for (int n = 0; n < kTiles; ++n) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int place = n * 8 + lane_of_warp() % 4 * 2 + i % 2, t = query + place;
      const float dropped = drop(dp[n][i], kept, n, i);
      const Pair pair = differentiate<Value>(score, products[n][i], h, key[i / 2] + shift - t,
                                             seen[i / 2](t), lse[place], dropped, delta[place]);
      products[n][i] = drop(pair.p, kept, n, i);
      dp[n][i] = pair.ds;
    }
  }
}

// sum += weights · rows, through the warp's tile of shared memory.
template <typename K, int kTiles, int kWeightTiles, typename Value>
__device__ void add_product(float (&sum)[kTiles][4], const float (&weights)[kWeightTiles][4],
                            Value* warp_tile, const Value* rows, int columns) {
  put_tile(warp_tile, K::kWeightLd, weights);
  __syncwarp();
  multiply_columns<K::kBlock>(sum, warp_tile, K::kWeightLd, rows, K::kLd, columns);
  __syncwarp();
}

template <typename Value, int kD, typename Score, typename Drop>
__global__ void __launch_bounds__(Backward<Value, kD>::kThreads)
    attention_dkv_kernel(Heads heads, Score score, Drop drop, GradientTensors<Value> tensors) {
  using K = Backward<Value, kD>;
  constexpr int kTiles = K::kColumns / 8, kQueryTiles = K::kBlock / 8, kParts = kD / K::kColumns;
  WEFT_DYNAMIC_SHARED(Value, shared);
  const GradientTiles<K, Value> tiles(shared);  // own: k, v; other: q, dout
  float* lse = reinterpret_cast<float*>(tiles.weights + K::kRows * K::kWeightLd);
  float* delta = lse + K::kBlock;

  const int b = static_cast<int>(blockIdx.z), g = static_cast<int>(blockIdx.y);
  const int column = static_cast<int>(blockIdx.x % kParts) * K::kColumns;
  const int columns = heads.columns - column;
  const int first = static_cast<int>(blockIdx.x / kParts) * K::kRows;
  const Side queries = heads.queries(b), keys = heads.keys(b);
  const int end = min(first + K::kRows, keys.length), group = heads.H / heads.G;

  const int lane = lane_of_warp(), warp_row = static_cast<int>(threadIdx.x) / 32 * 16;
  const int warp_first = first + warp_row;
  const int key[2] = {warp_first + lane / 4, warp_first + lane / 4 + 8};
  const Value *warp_k = tiles.own[0] + warp_row * K::kLd,
              *warp_v = tiles.own[1] + warp_row * K::kLd;
  Value* warp_p = tiles.weights + warp_row * K::kWeightLd;
  float dk[kTiles][4], dv[kTiles][4];
  clear(dk);
  clear(dv);
  load_tile<K::kLd>(tiles.own[0], tensors.k.rows(b, g), first, K::kRows, end, heads);
  load_tile<K::kLd>(tiles.own[1], tensors.v.rows(b, g), first, K::kRows, end, heads);

  int next = 0;
  for (int j = first; j < end; j = next) {  // one segment after the other
    const Segment at = Heads::segment(keys, queries, j, end);
    next = at.end;
    const Seen of_first = seeing_queries(heads, at, j),
               of_last = seeing_queries(heads, at, next - 1);
    const Seen seen[2] = {seeing_queries(heads, at, key[0]), seeing_queries(heads, at, key[1])};
    // From the block that holds the first query on: those before see no key from j on.
    const int skipped = (of_first.begin - at.other_begin) / K::kBlock * K::kBlock;
    for (int h = g * group; h < (g + 1) * group; ++h) {
      const auto drop_key = drop.head(b, h);
      for (int query = at.other_begin + skipped; query < of_last.end; query += K::kBlock) {
        __syncthreads();
        load_queries<K>(tiles.other[0], tiles.other[1], lse, delta, b, h, query, at.other_end,
                        heads, tensors);
        __syncthreads();
        if (warp_first + 15 < j || warp_first >= next) continue;
        if (heads.causal && query + K::kBlock <= warp_first + at.shift()) continue;
        float s[kQueryTiles][4], dp[kQueryTiles][4];
        clear(s);
        clear(dp);
        multiply_rows(s, warp_k, K::kLd, tiles.other[0], K::kLd, heads.columns);
        multiply_rows(dp, warp_v, K::kLd, tiles.other[1], K::kLd, heads.columns);
        const uint32_t kept = drop.template kept<false, kQueryTiles>(drop_key, key[0], query);
        differentiate_columns<Value>(s, dp, score, drop, kept, h, query, key, at.shift(), seen, lse,
                                     delta);
        add_product<K>(dv, s, warp_p, tiles.other[1] + column, columns);
        add_product<K>(dk, dp, warp_p, tiles.other[0] + column, columns);
      }
    }
  }
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    if (key[half] >= heads.S) continue;
    put_row(tensors.dk.at(b, key[half], g), dk, half, column, heads);
    put_row(tensors.dv.at(b, key[half], g), dv, half, column, heads);
  }
}

}  // namespace

void builtin_attention_dkv(const Context& context, const AttentionBackwardArgs& args,
                           const GradientWorkspace& workspace) {
  with_attention_shape(args.dtype, args.D, [&](auto value, auto d) {
    using Value = decltype(value);
    using K = Backward<Value, d>;
    const int64_t tiles = ceil_div(args.S, K::kRows);
    const dim3 blocks(static_cast<unsigned>(tiles * (d / K::kColumns)),
                      static_cast<unsigned>(args.G), static_cast<unsigned>(args.B));
    with_score(args, workspace.lines, [&](auto score) {
      using Score = decltype(score);
      with_maybe_dropout<Score>(args.dropout, [&](auto drop) {
        launch(context, "attention: dk, dv", attention_dkv_kernel<Value, d, Score, decltype(drop)>,
               blocks, dim3(K::kThreads), K::kShared, gradient_heads<Value>(args), score, drop,
               gradient_tensors<Value>(args, workspace.delta));
      });
    });
  });
}

}  // namespace weft::cuda
