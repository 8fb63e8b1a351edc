// kernel/cpu/level/attention.cpp: attention by blocks; T x S is never stored.
//
// A task is one head and 128 queries of one row. The segments of a packed row are processed one
// after the other, each as a separate row: no mask is needed, no key of another segment is touched,
// and the bits are those of the segment alone. Where queries are causal and come after all keys
// (padding that attends), they form a separate block after the others, whose bits do not depend on
// them.
#include "kernel/cpu/level/attention_forward.h"
#include "kernel/cpu/level/ops.h"
#include "kernel/cpu/workspace.h"

namespace weft::WEFT_LEVEL {
namespace {

template <typename T>
HeadView<T> view_of(const AttentionArgs& args, int64_t b, int64_t h, const AttentionSegment& at,
                    const BiasLines& lines) {
  const int64_t g = h / (args.H / args.G);
  return {.q = static_cast<const T*>(args.q.data) + args.q.at(b, at.begin, h),
          .q_step = args.q.position,
          .k = static_cast<const T*>(args.k.data) + args.k.at(b, at.source_begin, g),
          .k_step = args.k.position,
          .v = static_cast<const T*>(args.v.data) + args.v.at(b, at.source_begin, g),
          .v_step = args.v.position,
          .out = static_cast<T*>(args.out.data) + args.out.at(b, at.begin, h),
          .out_step = args.out.position,
          .lse = args.lse ? args.lse + (b * args.H + h) * args.T + at.begin : nullptr,
          .D = args.D,
          .scale = args.scale,
          .dropout = head_dropout(args.dropout, b, h),
          .begin = at.begin,
          .source_begin = at.source_begin,
          .bias = lines.of_head(h)};
}

// 128 queries of one head, from `first` on.
template <bool kDrops, typename T, typename Element>
void attend_queries(const AttentionArgs& args, const ForwardScratch<Element>& scratch,
                    const BiasLines& lines, int64_t b, int64_t h, int64_t first) {
  const int64_t end = lesser(args.T, first + kQueries);
  const int64_t stop = lesser(end, num_queries(args, b));
  int64_t t = first;
  while (t < stop) {
    const AttentionSegment at = attention_segment(args, b, t);
    const int64_t keys = at.source_end - at.source_begin;
    const KeyBounds bounds = {0, keys, args.causal, args.window};
    const HeadView<T> head = view_of<T>(args, b, h, at, lines);
    int64_t last = lesser(at.end, stop);
    const int64_t behind = at.begin + keys;  // queries from here on come after all keys
    if (args.causal && t < behind) last = lesser(last, behind);
    attend_block<kDrops>(head, scratch, t - at.begin, last - t, bounds);
    t = last;
  }
  for (t = greater(first, t); t < end; ++t) {
    T* out = static_cast<T*>(args.out.data) + args.out.at(b, t, h);
    __builtin_memset(out, 0, static_cast<size_t>(args.D) * sizeof(T));
    if (args.lse) args.lse[(b * args.H + h) * args.T + t] = 0.0f;
  }
}

float* lines_of(const Context& context, const AttentionArgs& args) {
  return reinterpret_cast<float*>(context.workspace) +
         forward_floats(args.D, args.dropout.rate > 0) * context.pool->num_threads();
}

}  // namespace

size_t attention_workspace(const AttentionArgs& args, int num_threads) {
  return static_cast<size_t>(forward_floats(args.D, args.dropout.rate > 0) * num_threads +
                             all_bias_floats(args)) *
         sizeof(float);
}

// The last queries have the most keys: they go first, for load balance.
void attention(const Context& context, const AttentionArgs& args) {
  check_workspace("attention", attention_workspace(args, context.pool->num_threads()),
                  context.workspace_bytes);
  const int64_t blocks = blocks_of(args.T, kQueries);
  const int64_t heads = args.B * args.H;
  const BiasLines lines = make_bias_lines(context, args, true, lines_of(context, args));
  with_type(args.dtype, [&](auto value) {
    using T = decltype(value);
    context.pool->run(heads * blocks, [&](int64_t task, int thread) {
      const int64_t first = (blocks - 1 - task / heads) * kQueries;
      const int64_t b = task % heads / args.H, h = task % args.H;
      using Element = typename Blocks<T>::Element;
      const bool drops = args.dropout.rate > 0;
      const auto scratch = forward_scratch<Element>(context.workspace, args.D, thread, drops);
      if (drops) {
        attend_queries<true, T>(args, scratch, lines, b, h, first);
      } else {
        attend_queries<false, T>(args, scratch, lines, b, h, first);
      }
    });
  });
}

}  // namespace weft::WEFT_LEVEL
