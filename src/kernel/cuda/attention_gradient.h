// kernel/cuda/attention_gradient.h: what the built-in backward kernels of attention share.
//
// With P = exp(S - lse): dP = dout·v, delta = dout·out, dS = P (dP - delta) scale;
// dq = sum over keys of dS k, dk = sum over queries and heads of dS q, dv = sum of P dout.
// Under dropout, with its mask M: dP = M (dout·v), dv = sum of P M dout.
//
// Three kernels and no atomics: delta (attention_builtin_backward.cu); dq by blocks of queries that
// walk over keys (attention_dq.cu); dk and dv by blocks of keys that walk over the queries of all
// heads of their group, head after head (attention_dkv.cu). The last two each recompute P, dS and
// M, except where the second keeps dS for the first (attention_kept.h). Segments of packed rows are
// processed one after the other, in blocks that begin where the segment does, as in the forward
// kernel: so bits are those that the segment would have as a separate row.
#pragma once

#include "kernel/cuda/attention_drawn.h"
#include "kernel/cuda/attention_kept.h"
#include "kernel/cuda/attention_launch.h"
#include "kernel/cuda/attention_score.h"
#include "kernel/cuda/attention_tiles.h"

namespace weft::cuda {

// In the context's workspace.
struct GradientWorkspace {
  float* delta;     // (B, H, T)
  float* lines;     // of the bias, where there is one
  float* partials;  // of the table's gradient, where it is wanted
  float* parts;     // of dk and dv, where groups are divided (attention_dkv_parts.h)
  Drawn drawn;      // the mask of dropout, for the kernels of attention_tensor.h
  Kept kept;        // for the same
};
void builtin_attention_dq(const Context&, const AttentionBackwardArgs&, const GradientWorkspace&);
void builtin_attention_dkv(const Context&, const AttentionBackwardArgs&, const GradientWorkspace&);
// The same in 16 bits with heads of up to 128 (attention_tensor.h).
void tensor_attention_dq(const Context&, const AttentionBackwardArgs&, const GradientWorkspace&);
void tensor_attention_kept_dq(const Context&, const AttentionBackwardArgs&,
                              const GradientWorkspace&, const Groups&);
void tensor_attention_dkv(const Context&, const AttentionBackwardArgs&, const GradientWorkspace&,
                          const Groups&);
// dk and dv out of `parts`, after the last groups.
void add_dkv_parts(const Context&, const AttentionBackwardArgs&, const GradientWorkspace&);
int64_t tensor_attention_dkv_floats(const AttentionBackwardArgs&);  // of GradientWorkspace::parts

// Of a block of threads on the smallest GPU, compute capability 7.5.
inline constexpr size_t kMostShared = 64 << 10;

template <typename Value, int kD>
struct Backward : Tiles<Value, kD> {
  using Base = Tiles<Value, kD>;
  static constexpr int kRows = Base::kBackRows, kBlock = Base::kBackBlock;
  static constexpr int kThreads = kRows * 2, kWarps = kThreads / 32;
  static constexpr int kWeightLd = kBlock + Base::kPad;
  static constexpr size_t kShared =
      sizeof(Value) * (2 * (kRows + kBlock) * Base::kLd + kRows * kWeightLd) +
      2 * sizeof(float) * kBlock;
};

// Shared memory of a block of threads: two tensors of its own rows, two of a block of the other
// side, one tile of weights per warp.
template <typename K, typename Value>
struct GradientTiles {
  Value *own[2], *other[2], *weights;
  __device__ __forceinline__ explicit GradientTiles(Value* shared)
      : own{shared, shared + K::kRows * K::kLd},
        other{own[1] + K::kRows * K::kLd, own[1] + (K::kRows + K::kBlock) * K::kLd},
        weights(other[1] + K::kBlock * K::kLd) {}
};

template <typename Value>
struct GradientTensors {
  Strided<const Value> q, k, v, out, dout;
  Strided<Value> dq, dk, dv;
  const float* lse;
  float* delta;
};

template <typename Value>
GradientTensors<Value> gradient_tensors(const AttentionBackwardArgs& args, float* delta) {
  return {.q = strided<const Value>(args.q),
          .k = strided<const Value>(args.k),
          .v = strided<const Value>(args.v),
          .out = strided<const Value>(args.out),
          .dout = strided<const Value>(args.dout),
          .dq = strided<Value>(args.dq),
          .dk = strided<Value>(args.dk),
          .dv = strided<Value>(args.dv),
          .lse = args.lse,
          .delta = delta};
}

template <typename Value>
Heads gradient_heads(const AttentionBackwardArgs& args) {
  return heads_of<Value>(args, {args.q, args.k, args.v, args.dout}, {args.dq, args.dk, args.dv});
}

constexpr float kNothing = 1e30f;  // an lse so large that P is zero

// Of a query; a missing one contributes nothing.
template <typename Value>
__device__ void load_statistics(int64_t at, bool is_there, const GradientTensors<Value>& tensors,
                                float* lse, float* delta) {
  *lse = is_there ? tensors.lse[at] : kNothing;
  *delta = is_there ? tensors.delta[at] : 0.0f;
}

// A query and a key: their probability and the gradient of their score; dp: of the probability.
struct Pair {
  float p, ds;
};
template <typename Value, typename Score>
__device__ __forceinline__ Pair differentiate(const Score& score, float product, int h,
                                              int distance, bool is_seen, float lse, float dp,
                                              float delta) {
  // Not for all pairs: a bias has none, and loads for them would take registers.
  if (Score::kHasBias && !is_seen) return {0.0f, 0.0f};
  const float p = exponential(Value{}, score(product, h, distance) - lse);
  const float ds = p * (dp - delta) * score.scale;
  return {is_seen ? p : 0.0f, is_seen ? ds : 0.0f};
}

}  // namespace weft::cuda
