// kernel/cpu/level/qk_norm.cpp: root-mean-square norm of every head of q and of k, and its
// gradient.
#include "kernel/cpu/level/ops.h"
#include "kernel/cpu/level/rms_row.h"
#include "kernel/cpu/level/rows.h"
#include "kernel/cpu/workspace.h"

namespace weft::WEFT_LEVEL {
namespace {

template <typename T>
[[gnu::flatten]] float sum_of_squares(const T* x, int64_t n) {
  Vecs sums = zero();
  each_four(n, [&](int64_t i, int chain, auto part) {
    const auto v = load(x + i, part);
    auto& squares = chain_of(sums, chain, part);
    squares = fma(v, v, squares);
  });
  return sum_all(sums);
}

// v of one token.
template <typename T, typename Args>
WEFT_INLINE void copy_v(const Args& args, const T* from, T* to) {
  const int64_t first = (args.H + args.G) * args.D;
  if (from == to) return;
  __builtin_memmove(to + first, from + first, static_cast<size_t>(args.G * args.D) * sizeof(T));
}

template <typename T, bool kOffset>
[[gnu::flatten]] void norm_token(const QkNormArgs& args, int64_t r) {
  const int64_t heads = args.H + args.G, base = r * (heads + args.G) * args.D;
  const T* x = static_cast<const T*>(args.x) + base;
  T* y = static_cast<T*>(args.y) + base;
  for (int64_t head = 0; head < heads; ++head) {
    const int64_t at = head * args.D;
    const float rstd = rstd_of(sum_of_squares(x + at, args.D), args.D, args.eps);
    args.rstd[r * heads + head] = rstd;
    const void* weight = head < args.H ? args.q_weight : args.k_weight;
    apply_norm<T, kOffset>(x + at, static_cast<const T*>(weight), rstd, y + at, args.D);
  }
  copy_v(args, x, y);
}

// Sums of one block of rows: of each leaf, the gradient of q's weight and that of k's.
int64_t partial_columns(const QkNormBackwardArgs& args) { return 2 * args.leaves * args.D; }

template <typename T, bool kOffset>
[[gnu::flatten]] void norm_token_backward(const QkNormBackwardArgs& args, int64_t r,
                                          float* partial) {
  const int64_t heads = args.H + args.G, base = r * (heads + args.G) * args.D;
  const int64_t q_heads = args.H / args.leaves, k_heads = args.G / args.leaves;  // of a leaf
  const T* dy = static_cast<const T*>(args.dy) + base;
  const T* x = static_cast<const T*>(args.x) + base;
  T* dx = static_cast<T*>(args.dx) + base;
  for (int64_t head = 0; head < heads; ++head) {
    const bool is_q = head < args.H;
    const int64_t at = head * args.D;
    const int64_t leaf = is_q ? head / q_heads : (head - args.H) / k_heads;
    const void* weight = is_q ? args.q_weight : args.k_weight;
    const bool is_frozen = (is_q ? args.dq_weight : args.dk_weight)[0] == nullptr;
    float* dweight = is_frozen ? nullptr : partial + (2 * leaf + (is_q ? 0 : 1)) * args.D;
    norm_backward<T, kOffset>(dy + at, x + at, nullptr, static_cast<const T*>(weight),
                              args.rstd[r * heads + head], dx + at, dweight, args.D);
  }
  copy_v(args, dy, dx);
}

// The second stage: sums over the blocks.
void finish(const Context& context, const QkNormBackwardArgs& args, const float* partials,
            int64_t blocks) {
  with_type(args.grad_dtype, [&](auto gradient) {
    for (int i = 0; i < 2 * args.leaves; ++i) {
      void* to = (i % 2 == 0 ? args.dq_weight : args.dk_weight)[i / 2];
      if (!to) continue;
      add_partials(context, partials, blocks, partial_columns(args), i * args.D, args.D,
                   static_cast<decltype(gradient)*>(to), args.accumulate);
    }
  });
}

}  // namespace

void qk_norm(const Context& context, const QkNormArgs& args) {
  with_type(args.dtype, [&](auto value) {
    with_offset(args.weight_offset, [&](auto offset) {
      each_row(context, args.R, (args.H + 2 * args.G) * args.D,
               [&](int64_t r) { norm_token<decltype(value), decltype(offset)::value>(args, r); });
    });
  });
}

size_t qk_norm_backward_workspace(const QkNormBackwardArgs& args, int) {
  if (!args.dq_weight[0] && !args.dk_weight[0]) return 0;
  return static_cast<size_t>(blocks_of(args.R, kRowBlock) * partial_columns(args)) * sizeof(float);
}

void qk_norm_backward(const Context& context, const QkNormBackwardArgs& args) {
  const size_t bytes = qk_norm_backward_workspace(args, 1);
  check_workspace("qk_norm_backward", bytes, context.workspace_bytes);
  float* partials = reinterpret_cast<float*>(context.workspace);
  const int64_t blocks = blocks_of(args.R, kRowBlock), columns = partial_columns(args);
  with_type(args.dtype, [&](auto value) {
    with_offset(args.weight_offset, [&](auto offset) {
      context.pool->run(blocks, [&](int64_t block, int) {
        float* partial = partials + block * columns;
        if (bytes > 0) __builtin_memset(partial, 0, static_cast<size_t>(columns) * sizeof(float));
        const int64_t end = lesser(args.R, (block + 1) * kRowBlock);
        for (int64_t r = block * kRowBlock; r < end; ++r) {
          norm_token_backward<decltype(value), decltype(offset)::value>(args, r, partial);
        }
      });
    });
  });
  finish(context, args, partials, blocks);
}

}  // namespace weft::WEFT_LEVEL
