// kernel/cpu/level/attention.cpp: causal attention by blocks; T x T is never stored.
//
// A task is one head and 64 queries of one row. It walks the blocks of 64 keys up to the diagonal,
// keeping per query the highest score so far, the sum of exp against it and the weighted sum of
// values; where the highest grows, both sums are scaled down. Positions past the row's length are
// never queries, and a key never comes after its query, so the length needs no mask of its own.
#include "kernel/cpu/level/attention_block.h"
#include "kernel/cpu/level/ops.h"
#include "kernel/cpu/workspace.h"

namespace weft::WEFT_LEVEL {
namespace {

struct Scratch {
  float* q;        // (64, Dp)
  float* k;        // (64, Dp)
  float* kt;       // (Dp, 64)
  float* v;        // (64, Dp)
  float* o;        // (64, Dp) weighted sums of values
  float* s;        // (64, 64) scores, then weights
  float* scale;    // (64) what the sums so far are to be multiplied with
  float* highest;  // (64)
  float* sum;      // (64)
};

int64_t scratch_floats(int64_t D) { return 5 * kBlock * padded(D) + kBlock * kBlock + 3 * kBlock; }

Scratch scratch_of(const Context& context, int64_t D, int thread) {
  const int64_t block = kBlock * padded(D);
  float* at = reinterpret_cast<float*>(context.workspace) + thread * scratch_floats(D);
  Scratch scratch;
  scratch.q = at;
  scratch.k = at + block;
  scratch.kt = at + 2 * block;
  scratch.v = at + 3 * block;
  scratch.o = at + 4 * block;
  scratch.s = at + 5 * block;
  scratch.scale = scratch.s + kBlock * kBlock;
  scratch.highest = scratch.scale + kBlock;
  scratch.sum = scratch.highest + kBlock;
  return scratch;
}

// highest and scale of every query, now that this block's scores are known.
[[gnu::flatten]] void raise_highest(const Scratch& scratch, int64_t rows, float scale) {
  for (int64_t r = 0; r < rows; ++r) {
    const float* s = scratch.s + r * kBlock;
    Vec even = load(s), odd = load(s + kLanes);
#pragma GCC unroll 8
    for (int64_t i = 2 * kLanes; i < kBlock; i += 2 * kLanes) {
      even = maximum(even, load(s + i));
      odd = maximum(odd, load(s + i + kLanes));
    }
    scratch.scale[r] = max_lanes(maximum(even, odd)) * scale;
  }
  for (int64_t r = 0; r < kBlock; r += kLanes) {
    const Vec old = load(scratch.highest + r);
    const Vec highest = maximum(old, load(scratch.scale + r));
    store(scratch.highest + r, highest);
    store(scratch.scale + r, exp_of_small(old - highest));
  }
}

// Scores of one query become weights exp(scale s - highest).
[[gnu::flatten]] void weigh(const Scratch& scratch, int64_t row, float scale) {
  float* s = scratch.s + row * kBlock;
  const Vec minus_highest = splat(-scratch.highest[row]);
  Vec even = zero(), odd = zero();
#pragma GCC unroll 4
  for (int64_t i = 0; i < kBlock; i += 2 * kLanes) {
    const Vec p = exp_of_small(fma(load(s + i), splat(scale), minus_highest));
    const Vec q = exp_of_small(fma(load(s + i + kLanes), splat(scale), minus_highest));
    store(s + i, p);
    store(s + i + kLanes, q);
    even = even + p;
    odd = odd + q;
  }
  scratch.sum[row] = scratch.sum[row] * scratch.scale[row] + sum_lanes(even + odd);
}

template <typename T>
void write_out(const AttentionArgs& args, const Scratch& scratch, int64_t rows, T* out,
               float* lse) {
  for (int64_t r = 0; r < rows; ++r) {
    const float* o = scratch.o + r * padded(args.D);
    T* to = out + r * args.H * args.D;
    const Vec share = splat(1.0f / scratch.sum[r]);
    each_vector(args.D,
                [&](int64_t i, auto part) { store(to + i, load(o + i, part) * share, part); });
    if (lse) lse[r] = scratch.highest[r] + log(scratch.sum[r]);
  }
}

template <typename T>
void attend_block(const AttentionArgs& args, const Scratch& scratch, int64_t b, int64_t h,
                  int64_t first) {
  const int64_t width = (args.H + 2 * args.G) * args.D;
  const int64_t Dp = padded(args.D);
  const int64_t g = h / (args.H / args.G);
  const T* row = static_cast<const T*>(args.qkv) + b * args.T * width;
  T* out = static_cast<T*>(args.out) + ((b * args.T + first) * args.H + h) * args.D;
  float* lse = args.lse ? args.lse + (b * args.H + h) * args.T + first : nullptr;
  const int64_t wanted = lesser(kBlock, args.T - first);
  const int64_t rows = greater(0, lesser(wanted, args.lengths[b] - first));
  const int64_t tiles = round_up(rows, kTileRows);
  if (rows > 0) {
    copy_block(row + first * width + h * args.D, width, rows, args.D, scratch.q, Dp, tiles);
    __builtin_memset(scratch.o, 0, static_cast<size_t>(tiles * Dp) * sizeof(float));
    for (int64_t r = 0; r < kBlock; ++r) scratch.highest[r] = -__builtin_inff();
    for (int64_t r = 0; r < kBlock; ++r) scratch.sum[r] = 0.0f;
    for (int64_t key = 0; key <= first; key += kBlock) {
      const bool diagonal = key == first;
      const int64_t keys = diagonal ? rows : kBlock;
      const T* k = row + key * width + (args.H + g) * args.D;
      copy_block(k, width, keys, args.D, scratch.k, Dp, kBlock);
      transpose_block(scratch.k, Dp, kBlock, Dp, scratch.kt, kBlock);
      copy_block(k + args.G * args.D, width, keys, args.D, scratch.v, Dp, kBlock);
      multiply<false, Old::kReplace>(tiles, kBlock, Dp, scratch.q, Dp, scratch.kt, kBlock,
                                     scratch.s, kBlock, diagonal ? Shape::kLowerC : Shape::kWhole);
      if (diagonal) fill_above_diagonal(scratch.s, tiles, -__builtin_inff());
      raise_highest(scratch, tiles, args.scale);
      for (int64_t r = 0; r < tiles; ++r) weigh(scratch, r, args.scale);
      multiply<false, Old::kScaleAndAdd>(tiles, Dp, kBlock, scratch.s, kBlock, scratch.v, Dp,
                                         scratch.o, Dp, diagonal ? Shape::kLowerA : Shape::kWhole,
                                         scratch.scale);
    }
    write_out(args, scratch, rows, out, lse);
  }
  for (int64_t r = rows; r < wanted; ++r) {
    __builtin_memset(out + r * args.H * args.D, 0, static_cast<size_t>(args.D) * sizeof(T));
    if (lse) lse[r] = 0.0f;
  }
}

}  // namespace

size_t attention_workspace(const AttentionArgs& args, int num_threads) {
  return static_cast<size_t>(scratch_floats(args.D) * num_threads) * sizeof(float);
}

// The last queries have the most keys: they go first, so that no thread is left with them.
void attention(const Context& context, const AttentionArgs& args) {
  check_workspace("attention", attention_workspace(args, context.pool->num_threads()),
                  context.workspace_bytes);
  const int64_t blocks = blocks_of(args.T, kBlock);
  const int64_t heads = args.B * args.H;
  with_type(args.dtype, [&](auto value) {
    context.pool->run(heads * blocks, [&](int64_t task, int thread) {
      const int64_t first = (blocks - 1 - task / heads) * kBlock;
      const int64_t head = task % heads;
      attend_block<decltype(value)>(args, scratch_of(context, args.D, thread), head / args.H,
                                    head % args.H, first);
    });
  });
}

}  // namespace weft::WEFT_LEVEL
