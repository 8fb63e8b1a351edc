// kernel/cuda/attention_tensor.cu: attention in bf16 and fp16 with heads of up to 128.
//
// attention_builtin.cu says what is kept; attention_tensor.h what is different.
#include <cmath>

#include "kernel/cuda/attention_softmax.h"
#include "kernel/cuda/attention_tensor.h"
#include "kernel/cuda/attention_warpgroup.h"

namespace weft::cuda {
namespace {

template <int kHeadDim>
struct Sizes {
  static constexpr int kD = kHeadDim;
  static constexpr int kBlock = kD <= 64 ? 64 : 32;  // keys at a time
  // Of 16 queries of a warp, 64 apart. One: its queries are kept in registers. Two: what is read of
  // keys and values serves twice as many queries, which are read again with each tile.
  static constexpr int kParts = kD <= 96 ? 1 : 2;
  static constexpr int kWarps = 4;
  static constexpr int kBlocks = kParts == 1 ? 3 : 2;  // of threads on an SM
  static constexpr int kRows = 16 * kParts * kWarps, kThreads = 32 * kWarps;
  static constexpr int kTile = kBlock * kTileColumns<kD, kBlock>;
  static constexpr int kOwn = kRows * kTileColumns<kD, kRows>;
  static constexpr size_t kShared = sizeof(uint16_t) * (kOwn + 4 * kTile);
};

// Keys and values from `key` on, into one of two pairs of tiles behind the queries.
template <typename S, typename Copy, typename Value>
__device__ __forceinline__ void start_keys(Value* shared, int pair, const Copy& k, const Copy& v,
                                           int key) {
  const int tile = S::kOwn + pair * 2 * S::kTile;
  k.start(shared, tile, key);
  v.start(shared, tile + S::kTile, key);
  close_group();
}

// Products of the queries, of one part those in q, with the tile of keys at byte k_tile.
template <typename S, int kTiles, typename Value>
__device__ __forceinline__ void multiply_queries(float (&scores)[S::kParts][kTiles][4],
                                                 const uint32_t (&q)[S::kD / 16][4],
                                                 const Value* shared, int k_tile, int columns) {
#pragma unroll
  for (int part = 0; part < S::kParts; ++part) {
    clear(scores[part]);
    pin(scores[part]);
  }
  begin_products();
  if constexpr (S::kParts == 1) {
    multiply_all<S::kD, S::kBlock>(scores[0], q, shared, k_tile, columns);
  } else {
    multiply_tiles<S::kD, S::kRows, S::kBlock>(scores, shared, 0, k_tile, columns);
  }
  end_products();
#pragma unroll
  for (int part = 0; part < S::kParts; ++part) pin(scores[part]);
}

// The states' outputs += weights · the tile of values at byte v_tile.
template <typename S, int kSteps, typename Value>
__device__ __forceinline__ void add_values(State<S::kD / 8> (&states)[S::kParts],
                                           const uint32_t (&weights)[S::kParts][kSteps][4],
                                           const Value* shared, int v_tile, int columns) {
#pragma unroll
  for (int part = 0; part < S::kParts; ++part) pin(states[part].out);
  begin_products();
  add_all_weighted<S::kD, S::kBlock>(
      [&](int part) -> auto& { return states[part].out; }, weights, shared, v_tile, columns);
  end_products();
#pragma unroll
  for (int part = 0; part < S::kParts; ++part) pin(states[part].out);
}

template <typename Value, int kD, typename Score, typename Drop>
__global__ void __launch_bounds__(Sizes<kD>::kThreads, Sizes<kD>::kBlocks)
    attention_tensor_kernel(Heads heads, Score score, Drop drop, ForwardTensors<Value> tensors) {
  using S = Sizes<kD>;
  constexpr int kKeyTiles = S::kBlock / 8;
  WEFT_ALIGNED_SHARED(Value, shared);

  const BlockPlace place = place_of_block();
  const int b = place.z, h = place.y;
  const int g = h / (heads.H / heads.G);
  // The last queries have the most work: they start first.
  const int first = (static_cast<int>(gridDim.x) - 1 - place.x) * S::kRows;
  const Side queries = heads.queries(b), keys = heads.keys(b);
  const int end = min(first + S::kRows, queries.length);

  constexpr int kParts = S::kParts;
  const int lane = lane_of_warp(), warp_row = static_cast<int>(threadIdx.x) / 32 * 16;
  const int warp_first = first + warp_row, warp_last = warp_first + 64 * (kParts - 1) + 15;
  const int query = warp_first + lane / 4;
  const uint8_t* drawn = drop.head(b, h);
  State<kD / 8> states[kParts];
#pragma unroll
  for (int part = 0; part < kParts; ++part) {
    states[part] = {{-INFINITY, -INFINITY}, {0.0f, 0.0f}, {}};
    clear(states[part].out);
  }
  uint32_t q[kD / 16][4];  // of one part
  TileCopy<kD, S::kRows, S::kThreads, Value, S::kRows>(tensors.q.rows(b, h), end, heads)
      .start(shared, 0, first);

  int next = 0;
  for (int t = first; t < end; t = next) {  // one segment after the other
    const Segment at = Heads::segment(queries, keys, t, end);
    next = at.end;
    const Seen of_first = seen_keys(heads, at, t), of_last = seen_keys(heads, at, next - 1);
    const Seen by_all =
        seen_by_all(seen_keys(heads, at, warp_first), seen_keys(heads, at, warp_last));
    const int skipped = (of_first.begin - at.other_begin) / S::kBlock * S::kBlock;
    const int begin = at.other_begin + skipped;
    const TileCopy<kD, S::kBlock, S::kThreads, Value, S::kBlock> k(tensors.k.rows(b, g),
                                                                   of_last.end, heads),
        v(tensors.v.rows(b, g), of_last.end, heads);
    if (t > first) __syncthreads();  // the tiles may still be in use
    if (begin < of_last.end) start_keys<S>(shared, 0, k, v, begin);
    int pair = 0;
    for (int key = begin; key < of_last.end; key += S::kBlock, pair ^= 1) {
      wait_for_groups<0>();
      show_to_products();
      __syncthreads();
      // With wgmma again for every tile: ptxas (13.0) gave registers that it reads and that only
      // the first tile sets to the weights, too.
      if (kParts == 1 && (kTogether || key == begin))
        load_own<kD, S::kRows>(q, shared, 0, warp_row);
      if (key + S::kBlock < of_last.end) start_keys<S>(shared, pair ^ 1, k, v, key + S::kBlock);
      // A warp none of whose queries sees any of these keys has nothing to do.
      if (!kTogether && (warp_last < t || warp_first >= next)) continue;
      if (!kTogether && heads.causal && warp_last + at.shift() < key) continue;
      TileBits kept[kParts];
#pragma unroll
      for (int part = 0; part < kParts; ++part) {
        kept[part] = drop.template bits<true, kKeyTiles>(drawn, b, h, query + part * 64, key);
      }
      const int k_tile = (S::kOwn + pair * 2 * S::kTile) * 2;  // bytes
      float scores[kParts][kKeyTiles][4];
      multiply_queries<S>(scores, q, shared, k_tile, heads.columns);
      uint32_t weights[kParts][kKeyTiles / 2][4];
      const bool is_whole = is_inside(by_all, key, S::kBlock);
#pragma unroll
      for (int part = 0; part < kParts; ++part) {
        const int own = query + part * 64;
        score_products<1>(scores[part], score,
                          score.line(h, key + lane % 4 * 2 - own - at.shift()));
        if (!is_whole) {
          const Seen seen[2] = {seen_keys(heads, at, own), seen_keys(heads, at, own + 8)};
          hide_unseen(scores[part], key, seen);
        }
        weigh<Value>(scores[part], states[part]);
        drop.template each<true, kKeyTiles>(
            kept[part], [&](int n, int i, bool is_kept, float factor) {
              scores[part][n][i] = is_kept ? scores[part][n][i] * factor : 0.0f;
            });
        pack_weights<Value>(weights[part], scores[part]);
      }
      add_values<S>(states, weights, shared, k_tile + S::kTile * 2, heads.columns);
    }
  }
  close_group();  // of queries that see nothing
  wait_for_groups<0>();
#pragma unroll
  for (int part = 0; part < kParts; ++part) {
    const int own[2] = {query + part * 64, query + part * 64 + 8};
    put_output(states[part], own, queries.length, b, h, heads, tensors);
  }
}

}  // namespace

void tensor_attention(const Context& context, const AttentionArgs& args, const float* lines,
                      std::byte* mask) {
  const Drawn drawn = draw_mask(context, args, mask);
  with_tensor_shape(args.dtype, args.D, [&](auto value, auto d) {
    using Value = decltype(value);
    using S = Sizes<d>;
    const dim3 blocks(static_cast<unsigned>(ceil_div(args.T, S::kRows)),
                      static_cast<unsigned>(args.H), static_cast<unsigned>(args.B));
    const Heads heads = heads_of<Value>(args, {args.q, args.k, args.v}, {args.out});
    with_score(args, lines, [&](auto score) {
      using Score = decltype(score);
      with_drawn<Score, false>(args, drawn, [&](auto drop) {
        launch(context, "attention", attention_tensor_kernel<Value, d, Score, decltype(drop)>,
               blocks, dim3(S::kThreads), S::kShared, heads, score, drop,
               forward_tensors<Value>(args));
      });
    });
  });
}

}  // namespace weft::cuda
