// kernel/cuda/attention_builtin.cu: attention for every type, head dim, bias and packing.
//
// A block of threads owns some queries of one head and walks over the keys in blocks, as
// FlashAttention-2 does. For each query it keeps, over the keys seen so far, the highest score m,
// l = sum of exp(score - m), and the sum of exp(score - m) v. Where a block of keys raises m, what
// was summed before is scaled down to it. Keys that a query may not see have score -infinity and
// change no bits. With a window the first blocks that no query sees are skipped.
//
// Queries of several segments (packed rows) can share a block: their segments are processed one
// after the other, with blocks of keys that begin where the segment does. So a query has the same
// blocks, and the same bits, as in a separate row.
//
// Dropout scales the weights before the product with v; l is the sum of all.
#include <cmath>

#include "kernel/cpu/workspace.h"
#include "kernel/cuda/attention.h"
#include "kernel/cuda/attention_dropout.h"
#include "kernel/cuda/attention_launch.h"
#include "kernel/cuda/attention_score.h"
#include "kernel/cuda/attention_softmax.h"
#include "kernel/cuda/attention_tensor.h"
#include "kernel/cuda/attention_tiles.h"

namespace weft::cuda {
namespace {

template <typename Value, int kD>
struct Forward : Tiles<Value, kD> {
  using Base = Tiles<Value, kD>;
  static constexpr int kThreads = Base::kRows * 2;
  static constexpr int kWeightLd = Base::kBlock + Base::kPad;  // of P in shared memory
  static constexpr size_t kShared =
      sizeof(Value) * ((Base::kRows + 2 * Base::kBlock) * Base::kLd + Base::kRows * kWeightLd);
};

// products of queries with keys `key` .. -> scores, -infinity for pairs that are not seen.
template <int kKeyTiles, typename Score>
__device__ __forceinline__ void score_tile(float (&products)[kKeyTiles][4], const Score& score,
                                           int h, int key, const int (&query)[2], int shift,
                                           const Seen (&seen)[2]) {
#pragma unroll
  for (int n = 0; n < kKeyTiles; ++n) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int j = key + n * 8 + lane_of_warp() % 4 * 2 + i % 2;
      const bool is_seen = seen[i / 2](j);
      const int distance = j - query[i / 2] - shift;
      products[n][i] = is_seen ? score(products[n][i], h, distance) : -INFINITY;
    }
  }
}

template <int kKeyTiles, typename Drop>
__device__ __forceinline__ void drop_weights(float (&weights)[kKeyTiles][4], const Drop& drop,
                                             uint32_t kept) {
#pragma unroll
  for (int n = 0; n < kKeyTiles; ++n) {
#pragma unroll
    for (int i = 0; i < 4; ++i) weights[n][i] = drop(weights[n][i], kept, n, i);
  }
}

template <typename Value, int kD, typename Score, typename Drop>
__global__ void __launch_bounds__(Forward<Value, kD>::kThreads)
    attention_kernel(Heads heads, Score score, Drop drop, ForwardTensors<Value> tensors) {
  using F = Forward<Value, kD>;
  constexpr int kTiles = kD / 8, kKeyTiles = F::kBlock / 8;
  WEFT_DYNAMIC_SHARED(Value, shared);
  Value* q_tile = shared;
  Value* k_tile = q_tile + F::kRows * F::kLd;
  Value* v_tile = k_tile + F::kBlock * F::kLd;
  Value* weights = v_tile + F::kBlock * F::kLd;

  const int b = static_cast<int>(blockIdx.z), h = static_cast<int>(blockIdx.y);
  const int g = h / (heads.H / heads.G);
  // The last queries have the most work: they start first.
  const int first = static_cast<int>(gridDim.x - 1 - blockIdx.x) * F::kRows;
  const Side queries = heads.queries(b), keys = heads.keys(b);
  const int end = min(first + F::kRows, queries.length);
  const Rows<Value> k = tensors.k.rows(b, g), v = tensors.v.rows(b, g);

  const int lane = lane_of_warp(), warp_row = static_cast<int>(threadIdx.x) / 32 * 16;
  const int warp_first = first + warp_row;
  const int query[2] = {warp_first + lane / 4, warp_first + lane / 4 + 8};
  const auto drop_key = drop.head(b, h);
  State<kTiles> state = {{-INFINITY, -INFINITY}, {0.0f, 0.0f}, {}};
  clear(state.out);
  load_tile<F::kLd>(q_tile, tensors.q.rows(b, h), first, F::kRows, end, heads);

  int next = 0;
  for (int t = first; t < end; t = next) {  // one segment after the other
    const Segment at = Heads::segment(queries, keys, t, end);
    next = at.end;
    const Seen of_first = seen_keys(heads, at, t), of_last = seen_keys(heads, at, next - 1);
    const Seen seen[2] = {seen_keys(heads, at, query[0]), seen_keys(heads, at, query[1])};
    const int skipped = (of_first.begin - at.other_begin) / F::kBlock * F::kBlock;
    for (int key = at.other_begin + skipped; key < of_last.end; key += F::kBlock) {
      __syncthreads();
      load_tile<F::kLd>(k_tile, k, key, F::kBlock, of_last.end, heads);
      load_tile<F::kLd>(v_tile, v, key, F::kBlock, of_last.end, heads);
      __syncthreads();
      // A warp none of whose queries sees any of these keys has nothing to do.
      if (warp_first + 15 < t || warp_first >= next) continue;
      if (heads.causal && warp_first + 15 + at.shift() < key) continue;
      float scores[kKeyTiles][4];
      clear(scores);
      multiply_rows(scores, q_tile + warp_row * F::kLd, F::kLd, k_tile, F::kLd, heads.columns);
      score_tile(scores, score, h, key, query, at.shift(), seen);
      weigh<Value>(scores, state);
      drop_weights(scores, drop, drop.template kept<true, kKeyTiles>(drop_key, query[0], key));
      put_tile(weights + warp_row * F::kWeightLd, F::kWeightLd, scores);
      __syncwarp();
      multiply_columns<F::kBlock>(state.out, weights + warp_row * F::kWeightLd, F::kWeightLd,
                                  v_tile, F::kLd, heads.columns);
      __syncwarp();
    }
  }

  put_output(state, query, queries.length, b, h, heads, tensors);
}

}  // namespace

size_t builtin_attention_workspace(const AttentionArgs& args) {
  const size_t mask = uses_tensor_kernels(args) ? drawn_bytes(args) : 0;
  return (bias_lines_bytes(args) + 15) / 16 * 16 + mask;
}

void builtin_attention(const Context& context, const AttentionArgs& args) {
  check_workspace("attention", builtin_attention_workspace(args), context.workspace_bytes);
  auto* lines = reinterpret_cast<float*>(context.workspace);
  make_bias_lines(context, args, lines);
  if (uses_tensor_kernels(args)) {
    std::byte* mask = context.workspace + (bias_lines_bytes(args) + 15) / 16 * 16;
    return tensor_attention(context, args, lines, mask);
  }
  with_attention_shape(args.dtype, args.D, [&](auto value, auto d) {
    using Value = decltype(value);
    using F = Forward<Value, d>;
    const dim3 blocks(static_cast<unsigned>(ceil_div(args.T, F::kRows)),
                      static_cast<unsigned>(args.H), static_cast<unsigned>(args.B));
    const Heads heads = heads_of<Value>(args, {args.q, args.k, args.v}, {args.out});
    const ForwardTensors<Value> tensors = forward_tensors<Value>(args);
    with_score(args, lines, [&](auto score) {
      using Score = decltype(score);
      with_dropout(args.dropout, [&](auto drop) {
        launch(context, "attention", attention_kernel<Value, d, Score, decltype(drop)>, blocks,
               dim3(F::kThreads), F::kShared, heads, score, drop, tensors);
      });
    });
  });
}

}  // namespace weft::cuda
