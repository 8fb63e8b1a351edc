// kernel/cuda/attention_builtin_backward.cu: gradient of attention for every type, bias, packing.
//
// With P = exp(S - lse): dP = dout·v, delta = dout·out, dS = P (dP - delta) scale;
// dq = sum over keys of dS k, dk = sum over queries and heads of dS q, dv = sum of P dout.
//
// Three kernels and no atomics: delta; dq by blocks of queries that walk over keys; dk and dv by
// blocks of keys that walk over the queries of all heads of their group, head after head. The last
// two each recompute P and dS. Segments of packed rows are processed one after the other, in blocks
// that begin where the segment does, as in the forward kernel: so bits are those that the segment
// would have as a separate row. Under dropout, with its mask M recomputed by both: dP = M (dout·v),
// dv = sum of P M dout.
//
// The relative table's gradient is a sum of dS by distance: each warp of the dq kernel adds up the
// diagonals of its tiles, block of keys after block, into its own buckets; those are added last.
#include "kernel/attention_bias.h"
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

template <typename Value>
struct Tensors {
  Strided<const Value> q, k, v, out, dout;
  Strided<Value> dq, dk, dv;
  const float* lse;
  float* delta;
};

// delta[b, h, t] = dout · out, one warp each; 0 where t does not attend.
constexpr int kDeltaThreads = 256;
template <typename Value>
__global__ void attention_delta_kernel(Heads heads, int64_t count, Tensors<Value> tensors) {
  const int64_t i = (int64_t{blockIdx.x} * kDeltaThreads + threadIdx.x) / 32;  // of (B, T, H)
  if (i >= count) return;
  const int h = static_cast<int>(i % heads.H), t = static_cast<int>(i / heads.H % heads.T);
  const int b = static_cast<int>(i / heads.H / heads.T);
  const Value* out = tensors.out.at(b, t, h);
  const Value* dout = tensors.dout.at(b, t, h);
  float sum = 0.0f;
  for (int d = lane_of_warp(); d < heads.D; d += 32) {
    sum = fmaf(load_one(out + d), load_one(dout + d), sum);
  }
  sum = warp_sum(sum);
  if (lane_of_warp() == 0) {
    tensors.delta[heads.statistic(b, h, t)] = t < heads.queries(b).length ? sum : 0.0f;
  }
}

// Of a query; a missing one contributes nothing.
template <typename Value>
__device__ void load_statistics(int64_t at, bool is_there, const Tensors<Value>& tensors,
                                float* lse, float* delta) {
  *lse = is_there ? tensors.lse[at] : kNothing;
  *delta = is_there ? tensors.delta[at] : 0.0f;
}

// A block of queries up to `end`, by all threads.
template <typename K, typename Value>
__device__ void load_queries(Value* q_tile, Value* dout_tile, float* lse, float* delta, int b,
                             int h, int query, int end, const Heads& heads,
                             const Tensors<Value>& tensors) {
  load_tile<K::kLd>(q_tile, tensors.q.rows(b, h), query, K::kBlock, end, heads);
  load_tile<K::kLd>(dout_tile, tensors.dout.rows(b, h), query, K::kBlock, end, heads);
  for (int i = static_cast<int>(threadIdx.x); i < K::kBlock; i += K::kThreads) {
    load_statistics(heads.statistic(b, h, query + i), query + i < end, tensors, &lse[i], &delta[i]);
  }
}

// A query and a key: their probability and the gradient of their score; dp: of the probability.
struct Pair {
  float p, ds;
};
template <typename Value, typename Score>
__device__ Pair differentiate(const Score& score, float s, int h, int distance, bool is_seen,
                              float lse, float dp, float delta) {
  if (!is_seen) return {0.0f, 0.0f};
  const float p = exp_for(Value{}, score(s, h, distance) - lse);
  return {p, p * (dp - delta) * score.scale};
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

// What a warp of the dq kernel does with its tile of dS for the table: nothing ...
struct NoTable {
  template <int kBlock, typename Value>
  __device__ void add(const Value*, int, int, char*) const {}
  __device__ void begin(char*) const {}
  __device__ void write(int, int, char*) const {}
};

// ... or sums of its diagonals by bucket. memory: of the warp.
struct TableSums {
  RelativeBuckets buckets;
  float* partials;  // (B, H, parts, buckets)
  int parts;
  static constexpr int kMostDiagonals = 64 + 15;
  static constexpr int kFixed = (kMostDiagonals + 1) * (sizeof(float) + sizeof(int));
  int bytes() const { return kFixed + buckets.count * static_cast<int>(sizeof(float)); }

  __device__ float* sums(char* memory) const { return reinterpret_cast<float*>(memory + kFixed); }
  __device__ void begin(char* memory) const {
    for (int i = lane_of_warp(); i < buckets.count; i += 32) sums(memory)[i] = 0.0f;
    __syncwarp();
  }
  // ds (16, kBlock); distance: of its first element.
  template <int kBlock, typename Value>
  __device__ void add(const Value* ds, int ld, int distance, char* memory) const {
    static_assert(kBlock + 15 <= kMostDiagonals);
    auto* line = reinterpret_cast<float*>(memory);
    auto* bucket = reinterpret_cast<int*>(line + kMostDiagonals + 1);
    for (int i = lane_of_warp(); i < kBlock + 15; i += 32) {
      float sum = 0.0f;
      for (int r = max(0, 15 - i); r < min(16, kBlock + 15 - i); ++r) {
        sum += load_one(ds + r * ld + i - 15 + r);
      }
      line[i] = sum;
      bucket[i] = relative_bucket(buckets, distance + i - 15);
    }
    __syncwarp();
    for (int own = lane_of_warp(); own < buckets.count; own += 32) {
      float sum = sums(memory)[own];
      for (int i = 0; i < kBlock + 15; ++i) {
        if (bucket[i] == own) sum += line[i];
      }
      sums(memory)[own] = sum;
    }
    __syncwarp();
  }
  __device__ void write(int row_and_head, int part, char* memory) const {
    float* to = partials + (int64_t{row_and_head} * parts + part) * buckets.count;
    for (int i = lane_of_warp(); i < buckets.count; i += 32) to[i] = sums(memory)[i];
  }
};

template <typename Value, int kD, typename Score, typename Drop, typename Table>
__global__ void __launch_bounds__(Backward<Value, kD>::kThreads)
    attention_dq_kernel(Heads heads, Score score, Drop drop, Table table, int table_bytes,
                        Tensors<Value> tensors) {
  using K = Backward<Value, kD>;
  constexpr int kTiles = kD / 8, kKeyTiles = K::kBlock / 8;
  WEFT_DYNAMIC_SHARED(Value, shared);
  Value* q_tile = shared;
  Value* dout_tile = q_tile + K::kRows * K::kLd;
  Value* k_tile = dout_tile + K::kRows * K::kLd;
  Value* v_tile = k_tile + K::kBlock * K::kLd;
  Value* ds_tile = v_tile + K::kBlock * K::kLd;
  const int warp = static_cast<int>(threadIdx.x) / 32;
  char* memory = reinterpret_cast<char*>(shared) + K::kShared + warp * table_bytes;

  const int b = static_cast<int>(blockIdx.z), h = static_cast<int>(blockIdx.y);
  const int g = h / (heads.H / heads.G);
  const int tile = static_cast<int>(gridDim.x - 1 - blockIdx.x), first = tile * K::kRows;
  const Side queries = heads.queries(b), keys = heads.keys(b);
  const int end = min(first + K::kRows, queries.length);
  const Rows<Value> k = tensors.k.rows(b, g), v = tensors.v.rows(b, g);

  const int lane = lane_of_warp(), warp_row = warp * 16, warp_first = first + warp_row;
  const int query[2] = {warp_first + lane / 4, warp_first + lane / 4 + 8};
  const auto drop_key = drop.head(b, h);
  float lse[2], delta[2], dq[kTiles][4];
  clear(dq);
  table.begin(memory);
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    load_statistics(heads.statistic(b, h, query[half]), query[half] < end, tensors, &lse[half],
                    &delta[half]);
  }
  load_tile<K::kLd>(q_tile, tensors.q.rows(b, h), first, K::kRows, end, heads);
  load_tile<K::kLd>(dout_tile, tensors.dout.rows(b, h), first, K::kRows, end, heads);

  int next = 0;
  for (int t = first; t < end; t = next) {  // one segment after the other
    const Segment at = Heads::segment(queries, keys, t, end);
    next = at.end;
    const Seen of_first = seen_keys(heads, at, t), of_last = seen_keys(heads, at, next - 1);
    const Seen seen[2] = {seen_keys(heads, at, query[0]), seen_keys(heads, at, query[1])};
    const int skipped = (of_first.begin - at.other_begin) / K::kBlock * K::kBlock;
    for (int key = at.other_begin + skipped; key < of_last.end; key += K::kBlock) {
      __syncthreads();
      load_tile<K::kLd>(k_tile, k, key, K::kBlock, of_last.end, heads);
      load_tile<K::kLd>(v_tile, v, key, K::kBlock, of_last.end, heads);
      __syncthreads();
      if (warp_first + 15 < t || warp_first >= next) continue;
      if (heads.causal && warp_first + 15 + at.shift() < key) continue;
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
          const int j = key + n * 8 + lane % 4 * 2 + i % 2;
          const float dropped = drop(dp[n][i], kept, n, i);
          const int distance = j - query[i / 2] - at.shift();
          s[n][i] = differentiate<Value>(score, s[n][i], h, distance, seen[i / 2](j), lse[i / 2],
                                         dropped, delta[i / 2])
                        .ds;
        }
      }
      put_tile(ds_tile + warp_row * K::kWeightLd, K::kWeightLd, s);
      __syncwarp();
      table.template add<K::kBlock>(ds_tile + warp_row * K::kWeightLd, K::kWeightLd,
                                    key - warp_first - at.shift(), memory);
      multiply_columns<K::kBlock>(dq, ds_tile + warp_row * K::kWeightLd, K::kWeightLd, k_tile,
                                  K::kLd, heads.columns);
      __syncwarp();
    }
  }
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    if (query[half] >= heads.T) continue;
    put_row(tensors.dq.at(b, query[half], h), dq, half, 0, heads);
  }
  table.write(b * heads.H + h, tile * (K::kThreads / 32) + warp, memory);
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
  const Side queries = heads.queries(b), keys = heads.keys(b);
  const int end = min(first + K::kRows, keys.length), group = heads.H / heads.G;

  const int lane = lane_of_warp(), warp_row = static_cast<int>(threadIdx.x) / 32 * 16;
  const int warp_first = first + warp_row;
  const int key[2] = {warp_first + lane / 4, warp_first + lane / 4 + 8};
  Value* warp_p = p_tile + warp_row * K::kWeightLd;
  float dk[kTiles][4], dv[kTiles][4];
  clear(dk);
  clear(dv);
  load_tile<K::kLd>(k_tile, tensors.k.rows(b, g), first, K::kRows, end, heads);
  load_tile<K::kLd>(v_tile, tensors.v.rows(b, g), first, K::kRows, end, heads);

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
        load_queries<K>(q_tile, dout_tile, lse, delta, b, h, query, at.other_end, heads, tensors);
        __syncthreads();
        if (warp_first + 15 < j || warp_first >= next) continue;
        if (heads.causal && query + K::kBlock <= warp_first + at.shift()) continue;
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
            const int place = n * 8 + lane % 4 * 2 + i % 2, t = query + place;
            const float dropped = drop(dp[n][i], kept, n, i);
            const Pair pair =
                differentiate<Value>(score, s[n][i], h, key[i / 2] + at.shift() - t, seen[i / 2](t),
                                     lse[place], dropped, delta[place]);
            s[n][i] = drop(pair.p, kept, n, i);
            dp[n][i] = pair.ds;
          }
        }
        add_product<K>(dv, s, warp_p, dout_tile + column, columns);
        add_product<K>(dk, dp, warp_p, q_tile + column, columns);
      }
    }
  }
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int t = key[half];
    if (t >= heads.S) continue;
    put_row(tensors.dk.at(b, t, g), dk, half, column, heads);
    put_row(tensors.dv.at(b, t, g), dv, half, column, heads);
  }
}

// Workspace: delta, lines of the bias, partial sums of the table, each a whole number of 16 bytes.
struct Workspace {
  size_t delta, lines, partials;
  size_t bytes() const { return delta + lines + partials; }
};
// Parts of a row and head: one per warp, up to a maximum.
int64_t parts_of(const AttentionBackwardArgs& args) { return ceil_div(args.T, 64) * 4; }
Workspace workspace_of(const AttentionBackwardArgs& args) {
  const auto bytes = [](int64_t floats) { return static_cast<size_t>(ceil_div(floats, 4) * 16); };
  const int64_t sums = args.B * args.H * parts_of(args) * args.bias.buckets.count;
  return {bytes(args.B * args.H * args.T), (bias_lines_bytes(args) + 15) / 16 * 16,
          args.dtable ? bytes(sums) : 0};
}

// fn(NoTable, bytes of a warp) or, where there is a bias, fn(TableSums, bytes of a warp).
template <typename Score, typename Fn>
void with_table(const AttentionBackwardArgs& args, int64_t parts, float* partials, const Fn& fn) {
  if constexpr (std::is_same_v<Score, BiasedScore>) {
    const TableSums sums = {args.bias.buckets, partials, static_cast<int>(parts)};
    if (args.dtable) return fn(sums, sums.bytes());
  }
  fn(NoTable{}, 0);
}

}  // namespace

size_t builtin_attention_backward_workspace(const AttentionBackwardArgs& args) {
  return workspace_of(args).bytes();
}

void builtin_attention_backward(const Context& context, const AttentionBackwardArgs& args) {
  const Workspace workspace = workspace_of(args);
  check_workspace("attention_backward", workspace.bytes(), context.workspace_bytes);
  auto* delta = reinterpret_cast<float*>(context.workspace);
  auto* lines = reinterpret_cast<float*>(context.workspace + workspace.delta);
  auto* partials = reinterpret_cast<float*>(context.workspace + workspace.delta + workspace.lines);
  make_bias_lines(context, args, lines);
  with_attention_shape(args.dtype, args.D, [&](auto value, auto d) {
    using Value = decltype(value);
    using K = Backward<Value, d>;
    const Heads heads =
        heads_of<Value>(args, {args.q, args.k, args.v, args.dout}, {args.dq, args.dk, args.dv});
    const Tensors<Value> tensors = {.q = strided<const Value>(args.q),
                                    .k = strided<const Value>(args.k),
                                    .v = strided<const Value>(args.v),
                                    .out = strided<const Value>(args.out),
                                    .dout = strided<const Value>(args.dout),
                                    .dq = strided<Value>(args.dq),
                                    .dk = strided<Value>(args.dk),
                                    .dv = strided<Value>(args.dv),
                                    .lse = args.lse,
                                    .delta = delta};
    const int64_t count = args.B * args.T * args.H;
    launch(context, "attention: delta", attention_delta_kernel<Value>,
           dim3(static_cast<unsigned>(ceil_div(count * 32, kDeltaThreads))), dim3(kDeltaThreads), 0,
           heads, count, tensors);
    const int64_t tiles = ceil_div(args.T, K::kRows), key_tiles = ceil_div(args.S, K::kRows);
    const int64_t parts = tiles * (K::kThreads / 32);
    const auto B = static_cast<unsigned>(args.B);
    const dim3 q_blocks(static_cast<unsigned>(tiles), static_cast<unsigned>(args.H), B);
    const dim3 kv_blocks(static_cast<unsigned>(key_tiles * (d / K::kColumns)),
                         static_cast<unsigned>(args.G), B);
    with_score(args, lines, [&](auto score) {
      with_dropout(args.dropout, [&](auto drop) {
        using Score = decltype(score);
        using Drop = decltype(drop);
        with_table<Score>(args, parts, partials, [&](auto table, int bytes) {
          launch(context, "attention: dq",
                 attention_dq_kernel<Value, d, Score, Drop, decltype(table)>, q_blocks,
                 dim3(K::kThreads), K::kShared + static_cast<size_t>(K::kThreads / 32 * bytes),
                 heads, score, drop, table, bytes, tensors);
        });
        launch(context, "attention: dk, dv", attention_dkv_kernel<Value, d, Score, Drop>, kv_blocks,
               dim3(K::kThreads), K::kShared, heads, score, drop, tensors);
      });
    });
    if (args.dtable) add_bias_partials(context, args, parts, partials);
  });
}

}  // namespace weft::cuda
