// kernel/cpu/level/cached_attention.cpp: attention of new positions to a cache of keys and values.
//
// A prompt is processed by blocks, as in training. A few new positions (generation adds one at a
// time) would leave such blocks almost empty: then a task is one head of one position, scores of 64
// keys at a time, then their weighted values, with the same running maximum.
#include "kernel/cpu/level/attention_forward.h"
#include "kernel/cpu/level/ops.h"
#include "kernel/cpu/level/rows.h"
#include "kernel/cpu/workspace.h"

namespace weft::WEFT_LEVEL {
namespace {

constexpr int64_t kMaxHeadDim = 256;
constexpr int64_t kFewPositions = 4;

template <typename T>
void fill_cache(const CachedAttentionArgs& args, int64_t b, int64_t t) {
  if (t >= args.lengths[b]) return;
  const int64_t kv = args.G * args.D;
  const size_t bytes = static_cast<size_t>(kv) * sizeof(T);
  const T* k = static_cast<const T*>(args.qkv) + (b * args.T + t) * (args.H + 2 * args.G) * args.D +
               args.H * args.D;
  const int64_t to = (b * args.max_positions + args.starts[b] + t) * kv;
  __builtin_memcpy(static_cast<T*>(args.k_cache) + to, k, bytes);
  __builtin_memcpy(static_cast<T*>(args.v_cache) + to, k + kv, bytes);
}

struct Running {
  float highest = -__builtin_inff();
  float sum = 0.0f;
  float o[kMaxHeadDim] = {};
};

template <typename T>
void score_keys(const T* q, const T* k, int64_t step, int64_t keys, int64_t D, float scale,
                float* s) {
  for (int64_t j = 0; j < keys; ++j) {
    Vec sum = zero();
    each_vector(D, [&](int64_t i, auto part) {
      sum = fma(load(q + i, part), load(k + j * step + i, part), sum);
    });
    s[j] = sum_lanes(sum) * scale;
  }
}

template <typename T>
void add_keys(Running& running, const float* s, int64_t keys, const T* v, int64_t step, int64_t D) {
  float highest = running.highest;
  for (int64_t j = 0; j < keys; ++j) highest = s[j] > highest ? s[j] : highest;
  float p[kBlock];
  Vec sum = zero();
  each_vector(keys, [&](int64_t i, auto part) {
    const Vec weight = fill_rest(exp(load(s + i, part) - splat(highest)), 0.0f, part);
    store(p + i, weight, part);
    sum = sum + weight;
  });
  const float shrink = exp(running.highest - highest);
  running.highest = highest;
  running.sum = running.sum * shrink + sum_lanes(sum);
  each_vector(D, [&](int64_t i, auto part) {
    Vec o = load(running.o + i, part) * splat(shrink);
    for (int64_t j = 0; j < keys; ++j) o = fma(splat(p[j]), load(v + j * step + i, part), o);
    store(running.o + i, o, part);
  });
}

template <typename T>
void attend(const CachedAttentionArgs& args, int64_t b, int64_t t, int64_t h) {
  const int64_t D = args.D;
  T* out = static_cast<T*>(args.out) + ((b * args.T + t) * args.H + h) * D;
  if (t >= args.lengths[b]) {
    __builtin_memset(out, 0, static_cast<size_t>(D) * sizeof(T));
    return;
  }
  const T* q =
      static_cast<const T*>(args.qkv) + (b * args.T + t) * (args.H + 2 * args.G) * D + h * D;
  const int64_t step = args.G * D;
  const int64_t cache = b * args.max_positions * step + h / (args.H / args.G) * D;
  const int64_t count = args.starts[b] + t + 1;
  Running running;
  for (int64_t key = 0; key < count; key += kBlock) {
    const int64_t keys = lesser(kBlock, count - key);
    const int64_t at = cache + key * step;
    float s[kBlock];
    score_keys(q, static_cast<const T*>(args.k_cache) + at, step, keys, D, args.scale, s);
    add_keys(running, s, keys, static_cast<const T*>(args.v_cache) + at, step, D);
  }
  const Vec share = splat(1.0f / running.sum);
  each_vector(
      D, [&](int64_t i, auto part) { store(out + i, load(running.o + i, part) * share, part); });
}

template <typename T>
void attend_prompt(const Context& context, const CachedAttentionArgs& args) {
  using Element = typename Blocks<T>::Element;
  const int64_t D = args.D, width = (args.H + 2 * args.G) * D, step = args.G * D;
  const int64_t blocks = blocks_of(args.T, kQueries);
  context.pool->run(args.B * args.H * blocks, [&](int64_t task, int thread) {
    const int64_t first = task % blocks * kQueries;
    const int64_t h = task / blocks % args.H, b = task / blocks / args.H;
    const int64_t cache = b * args.max_positions * step + h / (args.H / args.G) * D;
    const HeadView<T> head = {.q = static_cast<const T*>(args.qkv) + b * args.T * width + h * D,
                              .q_step = width,
                              .k = static_cast<const T*>(args.k_cache) + cache,
                              .k_step = step,
                              .v = static_cast<const T*>(args.v_cache) + cache,
                              .v_step = step,
                              .out = static_cast<T*>(args.out) + (b * args.T * args.H + h) * D,
                              .out_step = args.H * D,
                              .lse = nullptr,
                              .D = D,
                              .scale = args.scale};
    const int64_t end = lesser(args.T, first + kQueries);
    const int64_t rows = greater(0, lesser(end, args.lengths[b]) - first);
    if (rows > 0) {
      attend_block(head, forward_scratch<Element>(context.workspace, D, thread), first, rows,
                   {.ahead = args.starts[b]});
    }
    for (int64_t t = first + rows; t < end; ++t) {
      __builtin_memset(head.out + t * head.out_step, 0, static_cast<size_t>(D) * sizeof(T));
    }
  });
}

}  // namespace

size_t cached_attention_workspace(const CachedAttentionArgs& args, int num_threads) {
  return static_cast<size_t>(forward_floats(args.D, false) * num_threads) * sizeof(float);
}

void cached_attention(const Context& context, const CachedAttentionArgs& args) {
  check_workspace("cached_attention", cached_attention_workspace(args, context.pool->num_threads()),
                  context.workspace_bytes);
  with_type(args.dtype, [&](auto value) {
    using T = decltype(value);
    each_row(context, args.B * args.T, args.G * args.D,
             [&](int64_t r) { fill_cache<T>(args, r / args.T, r % args.T); });
    if (args.T > kFewPositions) {
      attend_prompt<T>(context, args);
      return;
    }
    context.pool->run(args.B * args.T * args.H, [&](int64_t task, int) {
      const int64_t row = task / args.H;
      attend<T>(args, row / args.T, row % args.T, task % args.H);
    });
  });
}

}  // namespace weft::WEFT_LEVEL
