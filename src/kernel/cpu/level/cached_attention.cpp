// kernel/cpu/level/cached_attention.cpp: attention of new positions to a cache of keys and values.
//
// A prompt is processed by blocks, as in training. A few new positions (generation adds one at a
// time) would leave such blocks almost empty: then a task is one head of one position, scores of 64
// keys at a time, then their weighted values, with the same running maximum.
#include "kernel/cpu/level/attention_forward.h"
#include "kernel/cpu/level/ops.h"
#include "kernel/cpu/workspace.h"

namespace weft::WEFT_LEVEL {
namespace {

constexpr int64_t kMaxHeadDim = 256;
constexpr int64_t kFewPositions = 4;

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
  const SeenKeys seen = args.seen_keys(b, t);
  if (seen.begin >= seen.end) {
    __builtin_memset(out, 0, static_cast<size_t>(D) * sizeof(T));
    return;
  }
  const T* q = static_cast<const T*>(args.q.data) + args.q.at(b, t, h);
  const int64_t step = args.G * D;
  const int64_t cache = b * args.max_positions * step + h / (args.H / args.G) * D;
  Running running;
  for (int64_t key = seen.begin; key < seen.end; key += kBlock) {
    const int64_t keys = lesser(kBlock, seen.end - key);
    const int64_t at = cache + key * step;
    float s[kBlock];
    score_keys(q, static_cast<const T*>(args.k_cache) + at, step, keys, D, args.scale, s);
    if (args.bias.kind != AttentionBias::Kind::kNone) {
      float bias[kBlock];
      fill_bias_line({args.bias, args.dtype, args.H, h}, key - seen.origin, 1, keys, bias);
      for (int64_t j = 0; j < keys; ++j) s[j] += bias[j];
    }
    add_keys(running, s, keys, static_cast<const T*>(args.v_cache) + at, step, D);
  }
  const Vec share = splat(1.0f / running.sum);
  each_vector(
      D, [&](int64_t i, auto part) { store(out + i, load(running.o + i, part) * share, part); });
}

// For the bias lines of a prompt: of all positions that the cache has.
AttentionOperands whole_cache(const CachedAttentionArgs& args) {
  return {.T = args.max_positions,
          .S = args.max_positions,
          .H = args.H,
          .dtype = args.dtype,
          .q = {},
          .k = {},
          .v = {},
          .bias = args.bias};
}

KeyBounds bounds_of(const CachedAttentionArgs& args, int64_t b) {
  if (args.source_lengths) return {.num_keys = args.source_lengths[b], .causal = false};
  return {.ahead = args.starts[b], .window = args.window};
}

template <typename T>
void attend_prompt(const Context& context, const CachedAttentionArgs& args) {
  using Element = typename Blocks<T>::Element;
  const int64_t D = args.D, step = args.G * D;
  const int64_t blocks = blocks_of(args.T, kQueries);
  float* after = reinterpret_cast<float*>(context.workspace) +
                 forward_floats(D, false) * context.pool->num_threads();
  const BiasLines lines = make_bias_lines(context, whole_cache(args), true, after);
  context.pool->run(args.B * args.H * blocks, [&](int64_t task, int thread) {
    const int64_t first = task % blocks * kQueries;
    const int64_t h = task / blocks % args.H, b = task / blocks / args.H;
    const int64_t cache = b * args.max_positions * step + h / (args.H / args.G) * D;
    const HeadView<T> head = {.q = static_cast<const T*>(args.q.data) + args.q.at(b, 0, h),
                              .q_step = args.q.position,
                              .k = static_cast<const T*>(args.k_cache) + cache,
                              .k_step = step,
                              .v = static_cast<const T*>(args.v_cache) + cache,
                              .v_step = step,
                              .out = static_cast<T*>(args.out) + (b * args.T * args.H + h) * D,
                              .out_step = args.H * D,
                              .lse = nullptr,
                              .D = D,
                              .scale = args.scale,
                              .bias = lines.of_head(h)};
    const int64_t end = lesser(args.T, first + kQueries);
    const int64_t rows = greater(0, lesser(end, args.lengths[b]) - first);
    if (rows > 0) {
      attend_block(head, forward_scratch<Element>(context.workspace, D, thread), first, rows,
                   bounds_of(args, b));
    }
    for (int64_t t = first + rows; t < end; ++t) {
      __builtin_memset(head.out + t * head.out_step, 0, static_cast<size_t>(D) * sizeof(T));
    }
  });
}

}  // namespace

size_t cached_attention_workspace(const CachedAttentionArgs& args, int num_threads) {
  const int64_t lines = args.T > kFewPositions ? all_bias_floats(whole_cache(args)) : 0;
  return static_cast<size_t>(forward_floats(args.D, false) * num_threads + lines) * sizeof(float);
}

void cached_attention(const Context& context, const CachedAttentionArgs& args) {
  check_workspace("cached_attention", cached_attention_workspace(args, context.pool->num_threads()),
                  context.workspace_bytes);
  with_type(args.dtype, [&](auto value) {
    using T = decltype(value);
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
