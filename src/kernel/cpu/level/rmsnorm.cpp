// kernel/cpu/level/rmsnorm.cpp: root-mean-square norm with residual add, and its gradient.
//
// A row fits in the L1 cache, so it is walked twice: statistics, then result.
#include "kernel/cpu/level/ops.h"
#include "kernel/cpu/level/rows.h"
#include "kernel/cpu/level/simd_four.h"
#include "kernel/cpu/workspace.h"

namespace weft::WEFT_LEVEL {
namespace {

// s = x + residual, rounded; its sum of squares.
template <typename T>
[[gnu::flatten]] float add_residual(const T* x, const T* residual, T* sum, int64_t C) {
  Vecs sums = zero();
  each_four(C, [&](int64_t i, int chain, auto part) {
    auto s = load(x + i, part);
    if (residual) s = round_to(T{}, s + load(residual + i, part));
    if (sum) store(sum + i, s, part);
    auto& squares = chain_of(sums, chain, part);
    squares = fma(s, s, squares);
  });
  return sum_all(sums);
}

template <typename T>
[[gnu::flatten]] void norm_row(const RmsNormArgs& args, int64_t r) {
  const int64_t base = r * args.C;
  const T* x = static_cast<const T*>(args.x) + base;
  const T* residual = args.residual ? static_cast<const T*>(args.residual) + base : nullptr;
  T* sum = args.sum ? static_cast<T*>(args.sum) + base : nullptr;
  const float squares = add_residual(x, residual, sum, args.C);
  if (!args.reuse_rstd) {
    const float mean = squares / static_cast<float>(args.C) + args.eps;
    args.rstd[r] = 1.0f / __builtin_sqrtf(mean);
  }
  if (!args.y) return;
  const T* s = sum ? sum : x;
  const T* weight = static_cast<const T*>(args.weight);
  T* y = static_cast<T*>(args.y) + base;
  const Vec rstd = splat(args.rstd[r]);
  each_four(args.C, [&](int64_t i, int, auto part) {
    const auto normed = round_to(T{}, load(s + i, part) * rstd);
    store(y + i, normed * load(weight + i, part), part);
  });
}

// With n = s rstd and g = dy weight: dx = rstd (g - n mean(g n)) + dsum; dweight += dy round(n).
template <typename T>
[[gnu::flatten]] void norm_row_backward(const RmsNormBackwardArgs& args, int64_t r,
                                        float* dweight) {
  const int64_t base = r * args.C;
  const T* dy = static_cast<const T*>(args.dy) + base;
  const T* s = static_cast<const T*>(args.s) + base;
  const T* dsum = args.dsum ? static_cast<const T*>(args.dsum) + base : nullptr;
  const T* weight = static_cast<const T*>(args.weight);
  T* dx = static_cast<T*>(args.dx) + base;
  const Vec rstd = splat(args.rstd[r]);
  Vecs sums = zero();
  each_four(args.C, [&](int64_t i, int chain, auto part) {
    const auto d = load(dy + i, part);
    const auto normed = load(s + i, part) * rstd;
    auto& sum = chain_of(sums, chain, part);
    sum = fma(d * load(weight + i, part), normed, sum);
    if (!dweight) return;
    store(dweight + i, fma(d, round_to(T{}, normed), load(dweight + i, part)), part);
  });
  const Vec mean = splat(sum_all(sums) / static_cast<float>(args.C));
  each_four(args.C, [&](int64_t i, int, auto part) {
    const auto g = load(dy + i, part) * load(weight + i, part);
    const auto normed = load(s + i, part) * rstd;
    auto d = fnma(normed, mean, g) * rstd;
    if (dsum) d = d + load(dsum + i, part);
    store(dx + i, d, part);
  });
}

}  // namespace

void rmsnorm(const Context& context, const RmsNormArgs& args) {
  with_type(args.dtype, [&](auto value) {
    each_row(context, args.R, args.C, [&](int64_t r) { norm_row<decltype(value)>(args, r); });
  });
}

size_t rmsnorm_backward_workspace(const RmsNormBackwardArgs& args, int) {
  if (!args.dweight) return 0;
  return static_cast<size_t>(blocks_of(args.R, kRowBlock) * args.C) * sizeof(float);
}

void rmsnorm_backward(const Context& context, const RmsNormBackwardArgs& args) {
  check_workspace("rmsnorm_backward", rmsnorm_backward_workspace(args, 1), context.workspace_bytes);
  float* partials = reinterpret_cast<float*>(context.workspace);
  const int64_t blocks = blocks_of(args.R, kRowBlock);
  with_type(args.dtype, [&](auto value) {
    context.pool->run(blocks, [&](int64_t block, int) {
      float* dweight = args.dweight ? partials + block * args.C : nullptr;
      if (dweight) __builtin_memset(dweight, 0, static_cast<size_t>(args.C) * sizeof(float));
      const int64_t end = lesser(args.R, (block + 1) * kRowBlock);
      for (int64_t r = block * kRowBlock; r < end; ++r) {
        norm_row_backward<decltype(value)>(args, r, dweight);
      }
    });
  });
  if (!args.dweight) return;
  with_type(args.grad_dtype, [&](auto gradient) {
    add_partials(context, partials, blocks, args.C, 0, args.C,
                 static_cast<decltype(gradient)*>(args.dweight), args.accumulate);
  });
}

}  // namespace weft::WEFT_LEVEL
