// kernel/cuda/attention_own_backward.cu: gradient of causal attention for every type and packing.
//
// With P = exp(S - lse): dP = dout·v, delta = dout·out, dS = P (dP - delta) scale;
// dq = sum over keys of dS k, dk = sum over queries and heads of dS q, dv = sum of P dout.
//
// Three kernels and no atomics: delta; dq by blocks of queries that walk over keys; dk and dv by
// blocks of keys that walk over the queries of all heads of their group, head after head. The last
// two compute P and dS each for itself. Segments of packed rows are done one after the other, in
// blocks that begin where the segment does, as in the forward kernel: so bits are those that the
// segment would have as a row of its own. Under dropout, with its mask M made again by both:
// dP = M (dout·v), dv = sum of P M dout.
#include "kernel/cpu/workspace.h"
#include "kernel/cuda/attention.h"
#include "kernel/cuda/attention_dropout.h"
#include "kernel/cuda/attention_launch.h"
#include "kernel/cuda/attention_tiles.h"
#include "kernel/cuda/reduce.h"

namespace weft::cuda {
namespace {

constexpr float kNothing = 1e30f;  // an lse so large that P is zero

template <typename Value, int kD>
struct Backward : Tiles<Value, kD> {
  using Base = Tiles<Value, kD>;
  static constexpr int kRows = Base::kBackRows, kBlock = Base::kBackBlock;
  static constexpr int kThreads = kRows * 2;
  static constexpr int kWeightLd = kBlock + Base::kPad;
  static constexpr size_t kShared =
      sizeof(Value) * (2 * (kRows + kBlock) * Base::kLd + kRows * kWeightLd) +
      2 * sizeof(float) * kBlock;
};

// The tensors of one call, and where one head of one row of the batch lies in them.
template <typename Value>
struct Tensors {
  const Value* qkv;
  const Value* dout;
  const float* lse;
  const float* delta;
  Value* dqkv;

  __device__ Rows<Value> head(const Heads& heads, int b, int head) const {
    return {qkv + int64_t{b} * heads.T * heads.width() + int64_t{head} * heads.D, heads.width()};
  }
  __device__ Rows<Value> dout_head(const Heads& heads, int b, int h) const {
    return {dout + (int64_t{b} * heads.T * heads.H + h) * heads.D, int64_t{heads.H} * heads.D};
  }
  __device__ Value* gradient(const Heads& heads, int b, int t, int head) const {
    return dqkv + (int64_t{b} * heads.T + t) * heads.width() + int64_t{head} * heads.D;
  }
};

// delta[b, h, t] = dout · out, a warp each; 0 where t does not attend.
constexpr int kDeltaThreads = 256;
template <typename Value>
__global__ void attention_delta_kernel(Heads heads, int64_t count, const Value* out,
                                       const Value* dout, float* delta) {
  const int64_t i = (int64_t{blockIdx.x} * kDeltaThreads + threadIdx.x) / 32;  // of (B, T, H)
  if (i >= count) return;
  const int h = static_cast<int>(i % heads.H), t = static_cast<int>(i / heads.H % heads.T);
  const int b = static_cast<int>(i / heads.H / heads.T);
  float sum = 0.0f;
  for (int d = lane_of_warp(); d < heads.D; d += 32) {
    sum = fmaf(load_one(out + i * heads.D + d), load_one(dout + i * heads.D + d), sum);
  }
  sum = warp_sum(sum);
  if (lane_of_warp() == 0) {
    delta[heads.statistic(b, h, t)] = t < heads.num_queries(heads.length(b)) ? sum : 0.0f;
  }
}

template <typename Value, int kD, typename Score, typename Drop>
__global__ void __launch_bounds__(Backward<Value, kD>::kThreads)
    attention_dq_kernel(Heads heads, Score score, Drop drop, Tensors<Value> tensors) {
  using K = Backward<Value, kD>;
  constexpr int kTiles = kD / 8, kKeyTiles = K::kBlock / 8;
  WEFT_DYNAMIC_SHARED(Value, shared);
  Value* q_tile = shared;
  Value* dout_tile = q_tile + K::kRows * K::kLd;
  Value* k_tile = dout_tile + K::kRows * K::kLd;
  Value* v_tile = k_tile + K::kBlock * K::kLd;
  Value* ds_tile = v_tile + K::kBlock * K::kLd;

  const int b = static_cast<int>(blockIdx.z), h = static_cast<int>(blockIdx.y);
  const int g = h / (heads.H / heads.G);
  const int first = static_cast<int>(gridDim.x - 1 - blockIdx.x) * K::kRows;
  const int length = heads.length(b), end = min(first + K::kRows, heads.num_queries(length));
  const Rows<Value> k = tensors.head(heads, b, heads.H + g);
  const Rows<Value> v = tensors.head(heads, b, heads.H + heads.G + g);

  const int lane = lane_of_warp(), warp_row = static_cast<int>(threadIdx.x) / 32 * 16;
  const int warp_first = first + warp_row;
  const int query[2] = {warp_first + lane / 4, warp_first + lane / 4 + 8};
  const auto drop_key = drop.head(b, h);
  float lse[2], delta[2], dq[kTiles][4];
  clear(dq);
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int64_t at = heads.statistic(b, h, query[half]);
    lse[half] = query[half] < end ? tensors.lse[at] : kNothing;
    delta[half] = query[half] < end ? tensors.delta[at] : 0.0f;
  }
  load_tile<K::kLd>(q_tile, tensors.head(heads, b, h), first, K::kRows, end, heads);
  load_tile<K::kLd>(dout_tile, tensors.dout_head(heads, b, h), first, K::kRows, end, heads);

  int next = 0;
  for (int t = first; t < end; t = next) {  // one segment after the other
    const int begin = heads.begin(b, t);
    next = heads.end_of_segment(b, t, end);
    const int last = min(next, length);  // behind the last key
    for (int key = begin; key < last; key += K::kBlock) {
      __syncthreads();
      load_tile<K::kLd>(k_tile, k, key, K::kBlock, last, heads);
      load_tile<K::kLd>(v_tile, v, key, K::kBlock, last, heads);
      __syncthreads();
      if (warp_first + 15 < key || warp_first + 15 < t || warp_first >= next) continue;
      float s[kKeyTiles][4], dp[kKeyTiles][4];
      clear(s);
      clear(dp);
      multiply_rows(s, q_tile + warp_row * K::kLd, K::kLd, k_tile, K::kLd, heads.columns);
      multiply_rows(dp, dout_tile + warp_row * K::kLd, K::kLd, v_tile, K::kLd, heads.columns);
      const uint32_t kept = drop.template kept<true, kKeyTiles>(drop_key, query[0], key);
#pragma unroll
      for (int n = 0; n < kKeyTiles; ++n) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const int at = query[i / 2], j = key + n * 8 + lane % 4 * 2 + i % 2;
          const bool is_seen = at >= t && at < next && j <= at && j < last;
          const float p = exp_for(Value{}, score(s[n][i], h, at, j) - lse[i / 2]);
          const float dropped = drop(dp[n][i], kept, n, i);
          s[n][i] = is_seen ? p * (dropped - delta[i / 2]) * score.scale : 0.0f;
        }
      }
      put_tile(ds_tile + warp_row * K::kWeightLd, K::kWeightLd, s);
      __syncwarp();
      multiply_columns<K::kBlock>(dq, ds_tile + warp_row * K::kWeightLd, K::kWeightLd, k_tile,
                                  K::kLd, heads.columns);
      __syncwarp();
    }
  }
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    if (query[half] >= heads.T) continue;
    put_row(tensors.gradient(heads, b, query[half], h), dq, half, 0, heads.D);
  }
}

// Rows are keys here, so all is transposed: s[key, query].
template <typename Value, int kD, typename Score, typename Drop>
__global__ void __launch_bounds__(Backward<Value, kD>::kThreads)
    attention_dkv_kernel(Heads heads, Score score, Drop drop, Tensors<Value> tensors) {
  using K = Backward<Value, kD>;
  constexpr int kTiles = K::kColumns / 8, kQueryTiles = K::kBlock / 8, kParts = kD / K::kColumns;
  WEFT_DYNAMIC_SHARED(Value, shared);
  Value* k_tile = shared;
  Value* v_tile = k_tile + K::kRows * K::kLd;
  Value* q_tile = v_tile + K::kRows * K::kLd;
  Value* dout_tile = q_tile + K::kBlock * K::kLd;
  Value* p_tile = dout_tile + K::kBlock * K::kLd;
  float* lse = reinterpret_cast<float*>(p_tile + K::kRows * K::kWeightLd);
  float* delta = lse + K::kBlock;

  const int b = static_cast<int>(blockIdx.z), g = static_cast<int>(blockIdx.y);
  const int column = static_cast<int>(blockIdx.x % kParts) * K::kColumns;
  const int columns = heads.columns - column;
  const int first = static_cast<int>(blockIdx.x / kParts) * K::kRows;
  const int length = heads.length(b), end = min(first + K::kRows, length);
  const int num_queries = heads.num_queries(length), group = heads.H / heads.G;

  const int lane = lane_of_warp(), warp_row = static_cast<int>(threadIdx.x) / 32 * 16;
  const int warp_first = first + warp_row;
  const int key[2] = {warp_first + lane / 4, warp_first + lane / 4 + 8};
  Value* warp_p = p_tile + warp_row * K::kWeightLd;
  float dk[kTiles][4], dv[kTiles][4];
  clear(dk);
  clear(dv);
  load_tile<K::kLd>(k_tile, tensors.head(heads, b, heads.H + g), first, K::kRows, end, heads);
  load_tile<K::kLd>(v_tile, tensors.head(heads, b, heads.H + heads.G + g), first, K::kRows, end,
                    heads);

  int next = 0;
  for (int j = first; j < end; j = next) {  // one segment after the other
    const int begin = heads.begin(b, j);
    next = heads.end_of_segment(b, j, end);
    for (int h = g * group; h < (g + 1) * group; ++h) {
      const auto drop_key = drop.head(b, h);
      // From the block that holds query j on: those before see no key from j on.
      for (int query = begin + (j - begin) / K::kBlock * K::kBlock;
           query < num_queries && heads.begin(b, query) == begin; query += K::kBlock) {
        __syncthreads();
        load_tile<K::kLd>(q_tile, tensors.head(heads, b, h), query, K::kBlock, num_queries, heads);
        load_tile<K::kLd>(dout_tile, tensors.dout_head(heads, b, h), query, K::kBlock, num_queries,
                          heads);
        for (int i = static_cast<int>(threadIdx.x); i < K::kBlock; i += K::kThreads) {
          const int t = query + i;
          const int64_t at = heads.statistic(b, h, t);
          const bool is_there = t < num_queries && heads.begin(b, t) == begin;
          lse[i] = is_there ? tensors.lse[at] : kNothing;
          delta[i] = is_there ? tensors.delta[at] : 0.0f;
        }
        __syncthreads();
        if (query + K::kBlock <= warp_first || warp_first + 15 < j || warp_first >= next) continue;
        float s[kQueryTiles][4], dp[kQueryTiles][4];
        clear(s);
        clear(dp);
        multiply_rows(s, k_tile + warp_row * K::kLd, K::kLd, q_tile, K::kLd, heads.columns);
        multiply_rows(dp, v_tile + warp_row * K::kLd, K::kLd, dout_tile, K::kLd, heads.columns);
        const uint32_t kept = drop.template kept<false, kQueryTiles>(drop_key, key[0], query);
#pragma unroll
        for (int n = 0; n < kQueryTiles; ++n) {
#pragma unroll
          for (int i = 0; i < 4; ++i) {
            const int at = n * 8 + lane % 4 * 2 + i % 2;
            const int row = key[i / 2], t = query + at;
            const bool is_seen = row >= j && row < next && row <= t;
            const float p = exp_for(Value{}, score(s[n][i], h, t, row) - lse[at]);
            const float dropped = drop(dp[n][i], kept, n, i);
            s[n][i] = is_seen ? drop(p, kept, n, i) : 0.0f;
            dp[n][i] = is_seen ? p * (dropped - delta[at]) * score.scale : 0.0f;
          }
        }
        put_tile(warp_p, K::kWeightLd, s);
        __syncwarp();
        multiply_columns<K::kBlock>(dv, warp_p, K::kWeightLd, dout_tile + column, K::kLd, columns);
        __syncwarp();
        put_tile(warp_p, K::kWeightLd, dp);
        __syncwarp();
        multiply_columns<K::kBlock>(dk, warp_p, K::kWeightLd, q_tile + column, K::kLd, columns);
        __syncwarp();
      }
    }
  }
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int t = key[half];
    if (t >= heads.T) continue;
    put_row(tensors.gradient(heads, b, t, heads.H + g), dk, half, column, heads.D);
    put_row(tensors.gradient(heads, b, t, heads.H + heads.G + g), dv, half, column, heads.D);
  }
}

}  // namespace

size_t own_attention_backward_workspace(const AttentionBackwardArgs& args) {
  return static_cast<size_t>(args.B * args.H * args.T) * sizeof(float);
}

void own_attention_backward(const Context& context, const AttentionBackwardArgs& args) {
  check_workspace("attention_backward", own_attention_backward_workspace(args),
                  context.workspace_bytes);
  auto* delta = reinterpret_cast<float*>(context.workspace);
  with_attention_shape(args.dtype, args.D, [&](auto value, auto d) {
    using Value = decltype(value);
    using K = Backward<Value, d>;
    const Heads heads = heads_of<Value>(args, {args.qkv, args.dout});
    const Tensors<Value> tensors = {.qkv = static_cast<const Value*>(args.qkv),
                                    .dout = static_cast<const Value*>(args.dout),
                                    .lse = args.lse,
                                    .delta = delta,
                                    .dqkv = static_cast<Value*>(args.dqkv)};
    const int64_t count = args.B * args.T * args.H;
    launch(context, "attention: delta", attention_delta_kernel<Value>,
           dim3(static_cast<unsigned>(ceil_div(count * 32, kDeltaThreads))), dim3(kDeltaThreads), 0,
           heads, count, static_cast<const Value*>(args.out), tensors.dout, delta);
    const int64_t tiles = ceil_div(args.T, K::kRows);
    const auto B = static_cast<unsigned>(args.B);
    const dim3 q_blocks(static_cast<unsigned>(tiles), static_cast<unsigned>(args.H), B);
    const dim3 kv_blocks(static_cast<unsigned>(tiles * (d / K::kColumns)),
                         static_cast<unsigned>(args.G), B);
    with_dropout(args.dropout, [&](auto drop) {
      using Drop = decltype(drop);
      launch(context, "attention: dq", attention_dq_kernel<Value, d, PlainScore, Drop>, q_blocks,
             dim3(K::kThreads), K::kShared, heads, PlainScore{args.scale}, drop, tensors);
      launch(context, "attention: dk, dv", attention_dkv_kernel<Value, d, PlainScore, Drop>,
             kv_blocks, dim3(K::kThreads), K::kShared, heads, PlainScore{args.scale}, drop,
             tensors);
    });
  });
}

}  // namespace weft::cuda
