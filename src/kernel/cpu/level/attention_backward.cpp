// kernel/cpu/level/attention_backward.cpp: gradient of causal attention by blocks.
//
// A task is one key/value head of one row. For each of its query heads it walks the blocks of keys
// and, below each, the blocks of queries: P = exp(scale q·k - lse) is made again, dP = dout·v,
// dS = P (dP - delta) scale with delta = dout·out; then dv += P^T dout, dk += dS^T q, dq += dS k.
// dk and dv gather the query heads in order, so the result is one fixed sum.
#include "kernel/cpu/level/attention_block.h"
#include "kernel/cpu/level/ops.h"
#include "kernel/cpu/workspace.h"

namespace weft::WEFT_LEVEL {
namespace {

struct Scratch {
  float *dq, *dk, *dv;      // (T, Dp)
  float* delta;             // (T)
  float *q, *k, *v, *dout;  // (64, Dp)
  float *kt, *vt;           // (Dp, 64)
  float *p, *ds;            // (64, 64)
};

int64_t scratch_floats(int64_t T, int64_t D) {
  const int64_t Dp = padded(D);
  const int64_t all = round_up(T, kBlock);
  return 3 * all * Dp + all + 6 * kBlock * Dp + 2 * kBlock * kBlock;
}

Scratch scratch_of(const Context& context, int64_t T, int64_t D, int thread) {
  const int64_t all = round_up(T, kBlock);
  const int64_t Dp = padded(D);
  float* at = reinterpret_cast<float*>(context.workspace) + thread * scratch_floats(T, D);
  const auto take = [&](int64_t n) {
    float* taken = at;
    at += n;
    return taken;
  };
  Scratch scratch;
  for (float** p : {&scratch.dq, &scratch.dk, &scratch.dv}) *p = take(all * Dp);
  scratch.delta = take(all);
  for (float** p : {&scratch.q, &scratch.k, &scratch.v, &scratch.dout, &scratch.kt, &scratch.vt}) {
    *p = take(kBlock * Dp);
  }
  scratch.p = take(kBlock * kBlock);
  scratch.ds = take(kBlock * kBlock);
  return scratch;
}

WEFT_INLINE void clear(float* p, int64_t n) {
  __builtin_memset(p, 0, static_cast<size_t>(n) * sizeof(float));
}

// One task's place in the tensors.
template <typename T>
struct Head {
  const AttentionBackwardArgs& args;
  const Scratch& scratch;
  int64_t b, g;
  int64_t width = (args.H + 2 * args.G) * args.D;
  int64_t Dp = padded(args.D);
  int64_t length = lesser(args.T, args.lengths[b]);

  const T* qkv(int64_t t, int64_t head) const {
    return static_cast<const T*>(args.qkv) + (b * args.T + t) * width + head * args.D;
  }
  T* dqkv(int64_t t, int64_t head) const {
    return static_cast<T*>(args.dqkv) + (b * args.T + t) * width + head * args.D;
  }
  int64_t o(int64_t t, int64_t h) const { return ((b * args.T + t) * args.H + h) * args.D; }

  void find_deltas(int64_t h) const {
    for (int64_t t = 0; t < length; ++t) {
      const T* out = static_cast<const T*>(args.out) + o(t, h);
      const T* dout = static_cast<const T*>(args.dout) + o(t, h);
      Vec sum = zero();
      each_vector(args.D, [&](int64_t i, auto part) {
        sum = fma(load(out + i, part), load(dout + i, part), sum);
      });
      scratch.delta[t] = sum_lanes(sum);
    }
  }

  // p and ds hold scores and dP; they become P and dS.
  void weigh(int64_t row, float lse, float delta) const {
    float* p = scratch.p + row * kBlock;
    float* ds = scratch.ds + row * kBlock;
    const Vec scale = splat(args.scale);
    const Vec minus_lse = splat(-lse);
    const Vec minus_delta = splat(-delta) * scale;
#pragma GCC unroll 4
    for (int64_t i = 0; i < kBlock; i += kLanes) {
      const Vec weight = exp_of_small(fma(load(p + i), scale, minus_lse));
      store(p + i, weight);
      store(ds + i, weight * fma(load(ds + i), scale, minus_delta));
    }
  }

  void query_block(int64_t h, int64_t key, int64_t first) const {
    const bool diagonal = key == first;
    const int64_t rows = lesser(kBlock, length - first);
    const int64_t tiles = round_up(rows, kTileRows);
    const Shape lower_c = diagonal ? Shape::kLowerC : Shape::kWhole;
    const Shape upper_a = diagonal ? Shape::kUpperA : Shape::kWhole;
    const Shape lower_a = diagonal ? Shape::kLowerA : Shape::kWhole;
    copy_block(qkv(first, h), width, rows, args.D, scratch.q, Dp, tiles);
    copy_block(static_cast<const T*>(args.dout) + o(first, h), args.H * args.D, rows, args.D,
               scratch.dout, Dp, tiles);
    multiply<false, Old::kReplace>(tiles, kBlock, Dp, scratch.q, Dp, scratch.kt, kBlock, scratch.p,
                                   kBlock, lower_c);
    multiply<false, Old::kReplace>(tiles, kBlock, Dp, scratch.dout, Dp, scratch.vt, kBlock,
                                   scratch.ds, kBlock, lower_c);
    if (diagonal) {
      fill_above_diagonal(scratch.p, tiles, -__builtin_inff());
      fill_above_diagonal(scratch.ds, tiles, 0.0f);
    }
    const float* lse = args.lse + (b * args.H + h) * args.T + first;
    for (int64_t r = 0; r < rows; ++r) weigh(r, lse[r], scratch.delta[first + r]);
    clear(scratch.p + rows * kBlock, (tiles - rows) * kBlock);
    clear(scratch.ds + rows * kBlock, (tiles - rows) * kBlock);
    const int64_t keys = diagonal ? tiles : kBlock;
    multiply<true, Old::kAdd>(keys, Dp, tiles, scratch.p, kBlock, scratch.dout, Dp,
                              scratch.dv + key * Dp, Dp, upper_a);
    multiply<true, Old::kAdd>(keys, Dp, tiles, scratch.ds, kBlock, scratch.q, Dp,
                              scratch.dk + key * Dp, Dp, upper_a);
    multiply<false, Old::kAdd>(tiles, Dp, kBlock, scratch.ds, kBlock, scratch.k, Dp,
                               scratch.dq + first * Dp, Dp, lower_a);
  }

  void query_head(int64_t h) const {
    find_deltas(h);
    clear(scratch.dq, round_up(length, kBlock) * Dp);
    for (int64_t key = 0; key < length; key += kBlock) {
      const int64_t keys = lesser(kBlock, length - key);
      copy_block(qkv(key, args.H + g), width, keys, args.D, scratch.k, Dp, kBlock);
      copy_block(qkv(key, args.H + args.G + g), width, keys, args.D, scratch.v, Dp, kBlock);
      transpose_block(scratch.k, Dp, kBlock, Dp, scratch.kt, kBlock);
      transpose_block(scratch.v, Dp, kBlock, Dp, scratch.vt, kBlock);
      for (int64_t first = key; first < length; first += kBlock) query_block(h, key, first);
    }
    write(scratch.dq, h);
  }

  void write(const float* from, int64_t head) const {
    for (int64_t t = 0; t < args.T; ++t) {
      T* to = dqkv(t, head);
      if (t >= length) {
        __builtin_memset(to, 0, static_cast<size_t>(args.D) * sizeof(T));
        continue;
      }
      each_vector(args.D, [&](int64_t i, auto part) {
        store(to + i, load(from + t * Dp + i, part), part);
      });
    }
  }

  void run() const {
    clear(scratch.dk, round_up(length, kBlock) * Dp);
    clear(scratch.dv, round_up(length, kBlock) * Dp);
    const int64_t group = args.H / args.G;
    for (int64_t h = g * group; h < (g + 1) * group; ++h) query_head(h);
    write(scratch.dk, args.H + g);
    write(scratch.dv, args.H + args.G + g);
  }
};

}  // namespace

size_t attention_backward_workspace(const AttentionBackwardArgs& args, int num_threads) {
  return static_cast<size_t>(scratch_floats(args.T, args.D) * num_threads) * sizeof(float);
}

void attention_backward(const Context& context, const AttentionBackwardArgs& args) {
  check_workspace("attention_backward",
                  attention_backward_workspace(args, context.pool->num_threads()),
                  context.workspace_bytes);
  with_type(args.dtype, [&](auto value) {
    context.pool->run(args.B * args.G, [&](int64_t task, int thread) {
      const Scratch scratch = scratch_of(context, args.T, args.D, thread);
      Head<decltype(value)>{args, scratch, task / args.G, task % args.G}.run();
    });
  });
}

}  // namespace weft::WEFT_LEVEL
