// kernel/cpu/level/attention.cpp: causal attention by blocks; T x T is never stored.
//
// A task is one head and 128 queries of one row. Positions past the row's length are never queries,
// and a key never comes after its query, so the length needs no mask of its own. The segments of a
// packed row are taken one after the other, each as a row that begins where it begins: no mask
// either, no key of another segment is touched, and the bits are those of the segment alone. Where
// padding attends, its queries are a block of their own behind those of the row, whose bits stay.
#include "kernel/cpu/level/attention_forward.h"
#include "kernel/cpu/level/ops.h"
#include "kernel/cpu/workspace.h"

namespace weft::WEFT_LEVEL {
namespace {

template <typename T>
HeadView<T> view_of(const AttentionArgs& args, int64_t b, int64_t h, int64_t begin) {
  const int64_t width = (args.H + 2 * args.G) * args.D;
  const int64_t g = h / (args.H / args.G);
  const int64_t first = b * args.T + begin;
  const T* row = static_cast<const T*>(args.qkv) + first * width;
  return {.q = row + h * args.D,
          .q_step = width,
          .k = row + (args.H + g) * args.D,
          .v = row + (args.H + args.G + g) * args.D,
          .kv_step = width,
          .out = static_cast<T*>(args.out) + (first * args.H + h) * args.D,
          .out_step = args.H * args.D,
          .lse = args.lse ? args.lse + (b * args.H + h) * args.T + begin : nullptr,
          .D = args.D,
          .scale = args.scale,
          .dropout = head_dropout(args.dropout, b, h),
          .begin = begin};
}

// 128 queries of one head, from `first` on.
template <bool kDrops, typename T, typename Element>
void attend_queries(const AttentionArgs& args, const ForwardScratch<Element>& scratch, int64_t b,
                    int64_t h, int64_t first) {
  const int32_t* positions = args.positions ? args.positions + b * args.T : nullptr;
  const int64_t end = lesser(args.T, first + kQueries);
  const int64_t stop = lesser(end, args.lengths[b]);
  for (int64_t t = first; t < stop;) {
    const int64_t begin = segment_begin(positions, t);
    const int64_t last = segment_end(positions, t, stop);
    attend_block<kDrops>(view_of<T>(args, b, h, begin), scratch, t - begin, last - t, 0);
    t = last;
  }
  const HeadView<T> head = view_of<T>(args, b, h, 0);
  const int64_t padding = greater(first, stop);
  if (args.padding_attends && args.lengths[b] > 0 && padding < end) {
    attend_block<kDrops>(head, scratch, padding, end - padding, 0, args.lengths[b]);
    return;
  }
  for (int64_t t = padding; t < end; ++t) {
    __builtin_memset(head.out + t * head.out_step, 0, static_cast<size_t>(args.D) * sizeof(T));
    if (head.lse) head.lse[t] = 0.0f;
  }
}

}  // namespace

size_t attention_workspace(const AttentionArgs& args, int num_threads) {
  return static_cast<size_t>(forward_floats(args.D, args.dropout.rate > 0) * num_threads) *
         sizeof(float);
}

// The last queries have the most keys: they go first, so that no thread is left with them.
void attention(const Context& context, const AttentionArgs& args) {
  check_workspace("attention", attention_workspace(args, context.pool->num_threads()),
                  context.workspace_bytes);
  const int64_t blocks = blocks_of(args.T, kQueries);
  const int64_t heads = args.B * args.H;
  with_type(args.dtype, [&](auto value) {
    using T = decltype(value);
    context.pool->run(heads * blocks, [&](int64_t task, int thread) {
      const int64_t first = (blocks - 1 - task / heads) * kQueries;
      const int64_t b = task % heads / args.H, h = task % args.H;
      using Element = typename Blocks<T>::Element;
      const bool drops = args.dropout.rate > 0;
      const auto scratch = forward_scratch<Element>(context.workspace, args.D, thread, drops);
      if (drops) {
        attend_queries<true, T>(args, scratch, b, h, first);
      } else {
        attend_queries<false, T>(args, scratch, b, h, first);
      }
    });
  });
}

}  // namespace weft::WEFT_LEVEL
