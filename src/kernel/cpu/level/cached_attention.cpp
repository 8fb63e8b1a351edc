// kernel/cpu/level/cached_attention.cpp: attention of new positions to a cache of keys and values.
//
// A prompt is processed by blocks, as in training. A few new positions (generation adds one at a
// time) would leave such blocks almost empty: then a task is one position and the heads that share
// keys, each with scores of 64 keys at a time, then their weighted values, with the same running
// maximum.
#include "kernel/cpu/level/attention_forward.h"
#include "kernel/cpu/level/ops.h"
#include "kernel/cpu/workspace.h"

namespace weft::WEFT_LEVEL {
namespace {

constexpr int64_t kMaxHeadDim = 256;
constexpr int64_t kFewPositions = 4;
constexpr int64_t kMaxHeads = 8;  // of a task

struct Running {
  float highest = -__builtin_inff();
  float sum = 0.0f;
  float o[kMaxHeadDim] = {};
};

// Chains of multiply-adds that advance together: one alone waits for its own last result.
constexpr int64_t kKeysTogether = 4;
constexpr int64_t kVectorsTogether = 64 / kLanes;

template <int kKeys, typename T>
WEFT_INLINE void score(const T* q, const T* k, int64_t step, int64_t D, float scale, float* s) {
  Vec sums[kKeys];
#pragma GCC unroll 4
  for (int j = 0; j < kKeys; ++j) sums[j] = zero();
  each_vector(D, [&](int64_t i, auto part) {
    const Vec left = load(q + i, part);
#pragma GCC unroll 4
    for (int j = 0; j < kKeys; ++j) sums[j] = fma(left, load(k + j * step + i, part), sums[j]);
  });
#pragma GCC unroll 4
  for (int j = 0; j < kKeys; ++j) s[j] = sum_lanes(sums[j]) * scale;
}

template <typename T>
void score_keys(const T* q, const T* k, int64_t step, int64_t keys, int64_t D, float scale,
                float* s) {
  int64_t j = 0;
  for (; j + kKeysTogether <= keys; j += kKeysTogether)
    score<kKeysTogether>(q, k + j * step, step, D, scale, s + j);
  for (; j < keys; ++j) score<1>(q, k + j * step, step, D, scale, s + j);
}

// o = o * shrink + the values, weighted with p.
template <typename T>
void add_values(float* o, float shrink, const float* p, int64_t keys, const T* v, int64_t step,
                int64_t D) {
  constexpr int64_t kColumns = kVectorsTogether * kLanes;
  int64_t first = 0;
  for (; first + kColumns <= D; first += kColumns) {
    Vec sums[kVectorsTogether];
#pragma GCC unroll 16
    for (int i = 0; i < kVectorsTogether; ++i)
      sums[i] = load(o + first + i * kLanes) * splat(shrink);
    for (int64_t j = 0; j < keys; ++j) {
      const Vec weight = splat(p[j]);
      const T* value = v + j * step + first;
#pragma GCC unroll 16
      for (int i = 0; i < kVectorsTogether; ++i)
        sums[i] = fma(weight, load(value + i * kLanes), sums[i]);
    }
#pragma GCC unroll 16
    for (int i = 0; i < kVectorsTogether; ++i) store(o + first + i * kLanes, sums[i]);
  }
  each_vector(D - first, [&](int64_t i, auto part) {
    Vec sum = load(o + first + i, part) * splat(shrink);
    for (int64_t j = 0; j < keys; ++j)
      sum = fma(splat(p[j]), load(v + j * step + first + i, part), sum);
    store(o + first + i, sum, part);
  });
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
  add_values(running.o, shrink, p, keys, v, step, D);
}

// Rows of the cache into the L2 cache, which a loop over keys reads too briefly to be foreseen.
template <typename T>
WEFT_INLINE void prefetch_rows(const T* rows, int64_t step, int64_t count, int64_t D) {
  constexpr int64_t kCacheLine = 64 / sizeof(T);
  for (int64_t j = 0; j < count; ++j) {
    for (int64_t i = 0; i < D; i += kCacheLine) __builtin_prefetch(rows + j * step + i, 0, 2);
  }
}

// `heads` heads from h on, which read the same keys and values.
template <typename T>
void attend(const CachedAttentionArgs& args, int64_t b, int64_t t, int64_t h, int64_t heads) {
  const int64_t D = args.D;
  T* out = static_cast<T*>(args.out) + ((b * args.T + t) * args.H + h) * D;
  const SeenKeys seen = args.seen_keys(b, t);
  if (seen.begin >= seen.end) {
    __builtin_memset(out, 0, static_cast<size_t>(heads * D) * sizeof(T));
    return;
  }
  const T* q = static_cast<const T*>(args.q.data) + args.q.at(b, t, h);
  const int64_t q_step = args.q.at(b, t, 1) - args.q.at(b, t, 0), step = args.G * D;
  const int64_t cache = b * args.max_positions * step + h / (args.H / args.G) * D;
  Running running[kMaxHeads];
  for (int64_t key = seen.begin; key < seen.end; key += kBlock) {
    const int64_t keys = lesser(kBlock, seen.end - key), next = key + keys;
    const T* k = static_cast<const T*>(args.k_cache) + cache + key * step;
    const T* v = static_cast<const T*>(args.v_cache) + cache + key * step;
    const int64_t coming = blocks_of(lesser(kBlock, seen.end - next), heads);  // for each head
    for (int64_t i = 0; i < heads; ++i) {
      const int64_t rows = lesser(coming, seen.end - next - i * coming);
      prefetch_rows(k + (keys + i * coming) * step, step, rows, D);
      prefetch_rows(v + (keys + i * coming) * step, step, rows, D);
      float s[kBlock];
      score_keys(q + i * q_step, k, step, keys, D, args.scale, s);
      if (args.bias.kind != AttentionBias::Kind::kNone) {
        float bias[kBlock];
        fill_bias_line({args.bias, args.dtype, args.H, h + i}, key - seen.origin, 1, keys, bias);
        for (int64_t j = 0; j < keys; ++j) s[j] += bias[j];
      }
      add_keys(running[i], s, keys, v, step, D);
    }
  }
  for (int64_t i = 0; i < heads; ++i) {
    const Vec share = splat(1.0f / running[i].sum);
    each_vector(D, [&](int64_t at, auto part) {
      store(out + i * D + at, load(running[i].o + at, part) * share, part);
    });
  }
}

// A task is as many heads of one position as read the same keys, or less where threads would idle.
template <typename T>
void attend_positions(const Context& context, const CachedAttentionArgs& args) {
  const int64_t same = args.H / args.G, groups = args.B * args.T * args.G;
  const int64_t parts = lesser(
      same, greater(blocks_of(same, kMaxHeads), blocks_of(context.pool->num_threads(), groups)));
  context.pool->run(groups * parts, [&](int64_t task, int) {
    const int64_t group = task / parts, part = task % parts, row = group / args.G;
    const int64_t first = same * part / parts, end = same * (part + 1) / parts;
    attend<T>(args, row / args.T, row % args.T, group % args.G * same + first, end - first);
  });
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
    attend_positions<T>(context, args);
  });
}

}  // namespace weft::WEFT_LEVEL
