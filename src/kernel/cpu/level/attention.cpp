// kernel/cpu/level/attention.cpp: causal attention by blocks; T x T is never stored.
//
// A task is one head and 128 queries of one row. Positions past the row's length are never queries,
// and a key never comes after its query, so the length needs no mask of its own.
#include "kernel/cpu/level/attention_forward.h"
#include "kernel/cpu/level/ops.h"
#include "kernel/cpu/workspace.h"

namespace weft::WEFT_LEVEL {
namespace {

template <typename T>
HeadView<T> view_of(const AttentionArgs& args, int64_t b, int64_t h) {
  const int64_t width = (args.H + 2 * args.G) * args.D;
  const int64_t g = h / (args.H / args.G);
  const T* row = static_cast<const T*>(args.qkv) + b * args.T * width;
  return {.q = row + h * args.D,
          .q_step = width,
          .k = row + (args.H + g) * args.D,
          .v = row + (args.H + args.G + g) * args.D,
          .kv_step = width,
          .out = static_cast<T*>(args.out) + (b * args.T * args.H + h) * args.D,
          .out_step = args.H * args.D,
          .lse = args.lse ? args.lse + (b * args.H + h) * args.T : nullptr,
          .D = args.D,
          .scale = args.scale};
}

}  // namespace

size_t attention_workspace(const AttentionArgs& args, int num_threads) {
  return static_cast<size_t>(forward_floats(args.D) * num_threads) * sizeof(float);
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
      const int64_t b = task % heads / args.H;
      const HeadView<T> head = view_of<T>(args, b, task % args.H);
      const int64_t end = lesser(args.T, first + kQueries);
      const int64_t rows = greater(0, lesser(end, args.lengths[b]) - first);
      if (rows > 0) {
        using Element = typename Blocks<T>::Element;
        attend_block(head, forward_scratch<Element>(context.workspace, args.D, thread), first, rows,
                     0);
      }
      for (int64_t t = first + rows; t < end; ++t) {
        __builtin_memset(head.out + t * head.out_step, 0, static_cast<size_t>(args.D) * sizeof(T));
        if (head.lse) head.lse[t] = 0.0f;
      }
    });
  });
}

}  // namespace weft::WEFT_LEVEL
