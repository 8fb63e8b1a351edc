// kernel/cpu/level/cached_attention.cpp: attention of new positions to a cache of keys and values.
//
// A prompt is processed by blocks, as in training. A few new positions (generation adds one at a
// time) would leave such blocks almost empty: cached_attention_few.h.
#include "kernel/cpu/level/attention_forward.h"
#include "kernel/cpu/level/cached_attention_few.h"
#include "kernel/cpu/level/ops.h"
#include "kernel/cpu/workspace.h"

namespace weft::WEFT_LEVEL {
namespace {

constexpr int64_t kFewPositions = 4;

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
    FewQueries<T>(args).run(context);
  });
}

}  // namespace weft::WEFT_LEVEL
