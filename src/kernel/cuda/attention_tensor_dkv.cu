// kernel/cuda/attention_tensor_dkv.cu: gradients of keys and values in bf16 and fp16 with heads of
// up to 128.
//
// Rows are keys here, so all is transposed: s[key, query]. attention_gradient.h says what is
// computed, attention_tensor.h how, but for the products, which the warps of a block make together
// (attention_warpgroup.h).
#include <algorithm>

#include "kernel/cuda/attention_dkv_parts.h"
#include "kernel/cuda/attention_gradient.h"
#include "kernel/cuda/attention_tensor.h"
#include "kernel/cuda/attention_warpgroup.h"

namespace weft::cuda {
namespace {

template <int kHeadDim>
struct Sizes {
  static constexpr int kD = kHeadDim;
  static constexpr int kBlock = kD <= 64 ? 64 : 32;  // queries of a tile
  static constexpr int kStep = 32;                   // of them at a time
  static constexpr int kWarps = 4, kRows = 16 * kWarps, kThreads = 32 * kWarps;
  static constexpr int kBlocks = 2;  // of threads on an SM
  static constexpr int kTile = kBlock * kTileColumns<kD, kBlock>;
  static constexpr int kOwn = kRows * kTileColumns<kD, kRows>;
  static constexpr bool kKeepsV = kD <= 96;  // in registers; else it stays behind the tiles
  // Two pairs of tiles; first the block's own rows of k and v are there.
  static constexpr int kTiles = std::max(4 * kTile, 2 * kOwn);
  static constexpr int kOwnV = kKeepsV ? kOwn : kTiles;
  static constexpr int kAll = kTiles + (kKeepsV ? 0 : kOwn);
  static constexpr size_t kShared = sizeof(uint16_t) * kAll + 4 * sizeof(float) * kBlock;
};

// The tiles of queries that a block of keys walks over: heads `head` .. end_head - 1 one after the
// other, in each the queries begin .. end - 1. Tiles, and lse and delta of their queries, are in
// two places in turns.
template <typename S, typename Value>
class Walk {
 public:
  // stop: queries from it on have no data.
  __device__ __forceinline__ Walk(int b, int head, int end_head, int begin, int end, int stop,
                                  const Heads& heads, const GradientTensors<Value>& tensors)
      : q_(tensors.q.rows(b, head), stop, heads),
        dout_(tensors.dout.rows(b, head), stop, heads),
        head_(head),
        end_head_(end_head),
        query_(begin),
        begin_(begin),
        end_(end) {
    const int thread = static_cast<int>(threadIdx.x), i = thread % S::kBlock;
    const float* of = thread < S::kBlock ? tensors.lse : tensors.delta;
    statistic_ = of + heads.statistic(b, head, i);
    stop_ = thread < 2 * S::kBlock ? stop - i : 0;
  }
  __device__ __forceinline__ bool is_done() const { return head_ == end_head_; }
  __device__ __forceinline__ int head() const { return head_; }
  __device__ __forceinline__ int query() const { return query_; }
  __device__ __forceinline__ void step(const Heads& heads, const GradientTensors<Value>& tensors) {
    query_ += S::kBlock;
    if (query_ < end_) return;
    query_ = begin_;
    ++head_;
    q_.advance(tensors.q.head);
    dout_.advance(tensors.dout.head);
    statistic_ += heads.T;
  }
  __device__ __forceinline__ void start(Value* tiles, float* statistics, int pair) const {
    q_.start(tiles, pair * 2 * S::kTile, query_);
    dout_.start(tiles, (pair * 2 + 1) * S::kTile, query_);
    const int thread = static_cast<int>(threadIdx.x);
    if (thread < 2 * S::kBlock) {
      start_word_or_zero(statistics + pair * 2 * S::kBlock + thread, statistic_ + query_,
                         query_ < stop_);
    }
    close_group();
  }

 private:
  TileCopy<S::kD, S::kBlock, S::kThreads, Value, S::kBlock> q_, dout_;
  int head_, end_head_, query_, begin_, end_, stop_;
  const float* statistic_;
};

// The block's rows of k and v as fragments of their warps.
template <typename S, typename Value>
__device__ __forceinline__ void load_keys(uint32_t (&k)[S::kD / 16][4],
                                          uint32_t (&v)[S::kD / 16][4], Value* tiles, int b, int g,
                                          int first, int end, int warp_row, const Heads& heads,
                                          const GradientTensors<Value>& tensors) {
  using Copy = TileCopy<S::kD, S::kRows, S::kThreads, Value, S::kRows>;
  Copy(tensors.k.rows(b, g), end, heads).start(tiles, 0, first);
  Copy(tensors.v.rows(b, g), end, heads).start(tiles, S::kOwnV, first);
  close_group();
  wait_for_groups<0>();
  show_to_products();
  __syncthreads();
  load_own<S::kD, S::kRows>(k, tiles, 0, warp_row);
  if constexpr (S::kKeepsV) load_own<S::kD, S::kRows>(v, tiles, S::kOwnV * 2, warp_row);
  __syncthreads();
}

// s = k·q and dp = v·dout of the tile of queries at byte q_tile and the tile of dout after it.
template <typename S, int kTiles, typename Value>
__device__ __forceinline__ void multiply_keys(float (&s)[kTiles][4], float (&dp)[1][kTiles][4],
                                              const uint32_t (&k)[S::kD / 16][4],
                                              const uint32_t (&v)[S::kD / 16][4],
                                              const Value* tiles, int q_tile, int columns) {
  const int dout_tile = q_tile + S::kTile * 2;
  clear(s);
  clear(dp[0]);
  pin(s);
  pin(dp[0]);
  begin_products();
  multiply_all<S::kD, S::kBlock>(s, k, tiles, q_tile, columns);
  if constexpr (S::kKeepsV) {
    multiply_all<S::kD, S::kBlock>(dp[0], v, tiles, dout_tile, columns);
  } else {
    multiply_tiles<S::kD, S::kRows, S::kBlock>(dp, tiles, S::kOwnV * 2, dout_tile, columns);
  }
  end_products();
  pin(s);
  pin(dp[0]);
}

// Scores of keys with queries -> P M; dp: v·dout -> dS. lse, delta: of the first query.
template <typename Value, int kTiles, typename Drop>
__device__ __forceinline__ void differentiate_columns(float (&s)[kTiles][4], float (&dp)[kTiles][4],
                                                      float scale, const Drop& drop,
                                                      const TileBits& kept, const float* lse,
                                                      const float* delta) {
  const int c = lane_of_warp() % 4 * 2;
  float2 of_lse[kTiles], of_delta[kTiles];
#pragma unroll
  for (int n = 0; n < kTiles; ++n) {
    of_lse[n] = *reinterpret_cast<const float2*>(lse + n * 8 + c);
    of_delta[n] = *reinterpret_cast<const float2*>(delta + n * 8 + c);
  }
  drop.template each<false, kTiles>(kept, [&](int n, int i, bool is_kept, float factor) {
    const float p = exponential(Value{}, s[n][i] - (i % 2 == 0 ? of_lse[n].x : of_lse[n].y));
    const float dropped = is_kept ? dp[n][i] * factor : 0.0f;
    dp[n][i] = p * (dropped - (i % 2 == 0 ? of_delta[n].x : of_delta[n].y)) * scale;
    s[n][i] = is_kept ? p * factor : 0.0f;
  });
}

template <typename Value, int kD, typename Score, typename Drop>
__global__ void __launch_bounds__(Sizes<kD>::kThreads, Sizes<kD>::kBlocks)
    attention_tensor_dkv_kernel(Heads heads, Score score, Drop drop, Parts parts, Kept kept_ds,
                                int first_group, GradientTensors<Value> tensors) {
  using S = Sizes<kD>;
  constexpr int kQueryTiles = S::kStep / 8;
  WEFT_ALIGNED_SHARED(Value, tiles);
  auto* statistics = reinterpret_cast<float*>(tiles + S::kAll);

  const BlockPlace place = place_of_block();
  const int b = (first_group + place.z) / heads.G, g = (first_group + place.z) % heads.G;
  const int first = place.x * S::kRows;
  const Side queries = heads.queries(b), keys = heads.keys(b);
  const int end = min(first + S::kRows, keys.length), group = heads.H / heads.G;
  const int part = place.y;
  const int first_head = g * group + part * group / parts.count,
            end_head = g * group + (part + 1) * group / parts.count;

  const int lane = lane_of_warp(), warp_row = static_cast<int>(threadIdx.x) / 32 * 16;
  const int warp_first = first + warp_row;
  const int key[2] = {warp_first + lane / 4, warp_first + lane / 4 + 8};
  float dk[1][kD / 8][4], dv[1][kD / 8][4];
  clear(dk[0]);
  clear(dv[0]);
  uint32_t k[kD / 16][4], v[kD / 16][4];
  load_keys<S>(k, v, tiles, b, g, first, end, warp_row, heads, tensors);

  int next = 0;
  for (int j = first; j < end; j = next) {  // one segment after the other
    const Segment at = Heads::segment(keys, queries, j, end);
    next = at.end;
    const Seen of_first = seeing_queries(heads, at, j),
               of_last = seeing_queries(heads, at, next - 1);
    const Seen seen[2] = {seeing_queries(heads, at, key[0]), seeing_queries(heads, at, key[1])};
    const Seen by_all = seen_by_all(seeing_queries(heads, at, warp_first),
                                    seeing_queries(heads, at, warp_first + 15));
    // From the block that holds the first query on: those before see no key from j on.
    const int skipped = (of_first.begin - at.other_begin) / S::kBlock * S::kBlock;
    const int begin = at.other_begin + skipped;
    if (begin >= of_last.end) continue;
    if (j > first) __syncthreads();  // the tiles may still be in use
    Walk<S, Value> walk(b, first_head, end_head, begin, of_last.end, at.other_end, heads, tensors);
    int pair = 0;
    walk.start(tiles, statistics, 0);
    while (!walk.is_done()) {
      const int h = walk.head(), from = walk.query(), now = pair;
      walk.step(heads, tensors);
      pair ^= 1;
      wait_for_groups<0>();
      show_to_products();
      __syncthreads();
      if (!walk.is_done()) walk.start(tiles, statistics, pair);
      if (!kTogether && (warp_first + 15 < j || warp_first >= next)) continue;
      const uint8_t* drawn = drop.head(b, h);
#pragma unroll 1
      for (int step = 0; step < S::kBlock; step += S::kStep) {
        const int query = from + step;
        if (heads.causal && query + S::kStep <= (kTogether ? j : warp_first) + at.shift()) continue;
        const TileBits kept = drop.template bits<false, kQueryTiles>(drawn, b, h, key[0], query);
        const int q_tile = (now * 2 * S::kTile + step * 64) * 2;  // bytes
        float s[kQueryTiles][4], dp[1][kQueryTiles][4];
        multiply_keys<S>(s, dp, k, v, tiles, q_tile, heads.columns);
        score_products<-1>(s, score, score.line(h, key[0] + at.shift() - query - lane % 4 * 2));
        if (!is_inside(by_all, query, S::kStep)) hide_unseen(s, query, seen);
        differentiate_columns<Value>(s, dp[0], score.scale, drop, kept,
                                     statistics + now * 2 * S::kBlock + step,
                                     statistics + (now * 2 + 1) * S::kBlock + step);
        uint32_t weights[1][kQueryTiles / 2][4], ds[1][kQueryTiles / 2][4];
        pack_weights<Value>(weights[0], s);
        pack_weights<Value>(ds[0], dp[0]);
        pin(dv[0]);
        pin(dk[0]);
        begin_products();
        add_all_weighted<kD, S::kBlock>(
            [&](int i) -> auto& { return dv[i]; }, weights, tiles, q_tile + S::kTile * 2,
            heads.columns);
        add_all_weighted<kD, S::kBlock>(
            [&](int i) -> auto& { return dk[i]; }, ds, tiles, q_tile, heads.columns);
        if (kept_ds.data != nullptr) {
          const int head = place.z * group + h - g * group;
          keep_fragments(kept_ds, head, query / 16, warp_first / 16, ds[0]);
        }
        end_products();
        pin(dv[0]);
        pin(dk[0]);
      }
    }
  }
  put_gradients(dk[0], dv[0], b, g, part, key, heads, parts, tensors);
}

}  // namespace

void tensor_attention_dkv(const Context& context, const AttentionBackwardArgs& args,
                          const GradientWorkspace& workspace, const Groups& groups) {
  with_tensor_shape(args.dtype, args.D, [&](auto value, auto d) {
    using Value = decltype(value);
    using S = Sizes<d>;
    const Parts parts = parts_of(args, workspace);
    const dim3 blocks(static_cast<unsigned>(ceil_div(args.S, S::kRows)),
                      static_cast<unsigned>(parts.count), static_cast<unsigned>(groups.count));
    with_score(args, workspace.lines, [&](auto score) {
      using Score = decltype(score);
      with_drawn<Score, true>(args, workspace.drawn, [&](auto drop) {
        launch(context, "attention: dk, dv",
               attention_tensor_dkv_kernel<Value, d, Score, decltype(drop)>, blocks,
               dim3(S::kThreads), S::kShared, gradient_heads<Value>(args), score, drop, parts,
               workspace.kept, groups.first, gradient_tensors<Value>(args, workspace.delta));
      });
    });
  });
}

}  // namespace weft::cuda
