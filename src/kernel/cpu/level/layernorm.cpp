// kernel/cpu/level/layernorm.cpp: layer norm with residual add, and its gradient.
//
// A row fits in the L1 cache, so it is walked three times: mean, variance, result.
#include "kernel/cpu/level/ops.h"
#include "kernel/cpu/level/rows.h"
#include "kernel/cpu/level/simd_four.h"
#include "kernel/cpu/workspace.h"

namespace weft::WEFT_LEVEL {
namespace {

// s = x + residual, rounded; its sum.
template <typename T>
[[gnu::flatten]] float add_residual(const T* x, const T* residual, T* sum, int64_t C) {
  Vecs sums = zero();
  each_four(C, [&](int64_t i, int chain, auto part) {
    auto s = load(x + i, part);
    if (residual) s = round_to(T{}, s + load(residual + i, part));
    if (sum) store(sum + i, s, part);
    auto& total = chain_of(sums, chain, part);
    total = total + s;
  });
  return sum_all(sums);
}

template <typename T>
[[gnu::flatten]] float squares_around(const T* s, float mean, int64_t C) {
  Vecs sums = zero();
  each_four(C, [&](int64_t i, int chain, auto part) {
    const auto off = fill_rest(load(s + i, part), mean, part) - splat(mean);
    auto& squares = chain_of(sums, chain, part);
    squares = fma(off, off, squares);
  });
  return sum_all(sums);
}

template <typename T>
[[gnu::flatten]] void norm_row(const LayerNormArgs& args, int64_t r) {
  const int64_t base = r * args.C;
  const T* x = static_cast<const T*>(args.x) + base;
  const T* residual = args.residual ? static_cast<const T*>(args.residual) + base : nullptr;
  T* sum = args.sum ? static_cast<T*>(args.sum) + base : nullptr;
  const T* s = sum ? sum : x;
  if (!args.reuse_statistics) {
    const float channels = static_cast<float>(args.C);
    args.mean[r] = add_residual(x, residual, sum, args.C) / channels;
    const float variance = squares_around(s, args.mean[r], args.C) / channels;
    args.rstd[r] = 1.0f / __builtin_sqrtf(variance + args.eps);
  }
  if (!args.y) return;
  const T* weight = static_cast<const T*>(args.weight);
  const T* bias = static_cast<const T*>(args.bias);
  T* y = static_cast<T*>(args.y) + base;
  const Vec mean = splat(args.mean[r]), rstd = splat(args.rstd[r]);
  each_four(args.C, [&](int64_t i, int, auto part) {
    const auto normed = (load(s + i, part) - mean) * rstd;
    const auto w = load(weight + i, part);
    store(y + i, bias ? fma(normed, w, load(bias + i, part)) : normed * w, part);
  });
}

// With n = (s - mean) rstd and g = dy weight: dx = rstd (g - mean(g) - n mean(g n)) + dsum;
// dweight += dy n; dbias += dy.
template <typename T>
[[gnu::flatten]] void norm_row_backward(const LayerNormBackwardArgs& args, int64_t r,
                                        float* dweight, float* dbias) {
  const int64_t base = r * args.C;
  const T* dy = static_cast<const T*>(args.dy) + base;
  const T* s = static_cast<const T*>(args.s) + base;
  const T* dsum = args.dsum ? static_cast<const T*>(args.dsum) + base : nullptr;
  const T* weight = static_cast<const T*>(args.weight);
  T* dx = static_cast<T*>(args.dx) + base;
  const Vec mean = splat(args.mean[r]), rstd = splat(args.rstd[r]);
  Vecs sums_g = zero(), sums_gn = zero();
  each_four(args.C, [&](int64_t i, int chain, auto part) {
    const auto d = load(dy + i, part);
    const auto g = d * load(weight + i, part);
    const auto normed = (load(s + i, part) - mean) * rstd;
    auto& sum_g = chain_of(sums_g, chain, part);
    auto& sum_gn = chain_of(sums_gn, chain, part);
    sum_g = sum_g + g;
    sum_gn = fma(g, normed, sum_gn);
    if (dweight) store(dweight + i, fma(d, normed, load(dweight + i, part)), part);
    if (dbias) store(dbias + i, load(dbias + i, part) + d, part);
  });
  const float channels = static_cast<float>(args.C);
  const Vec mean_g = splat(sum_all(sums_g) / channels),
            mean_gn = splat(sum_all(sums_gn) / channels);
  each_four(args.C, [&](int64_t i, int, auto part) {
    const auto g = load(dy + i, part) * load(weight + i, part);
    const auto normed = (load(s + i, part) - mean) * rstd;
    auto d = fnma(normed, mean_gn, g - mean_g) * rstd;
    if (dsum) d = d + load(dsum + i, part);
    store(dx + i, d, part);
  });
}

// Columns of a row of partial sums: dweight, then dbias, each where it is needed.
int64_t partial_columns(const LayerNormBackwardArgs& args) {
  return (args.dweight ? args.C : 0) + (args.dbias ? args.C : 0);
}

}  // namespace

void layernorm(const Context& context, const LayerNormArgs& args) {
  with_type(args.dtype, [&](auto value) {
    each_row(context, args.R, args.C, [&](int64_t r) { norm_row<decltype(value)>(args, r); });
  });
}

size_t layernorm_backward_workspace(const LayerNormBackwardArgs& args, int) {
  return static_cast<size_t>(blocks_of(args.R, kRowBlock) * partial_columns(args)) * sizeof(float);
}

void layernorm_backward(const Context& context, const LayerNormBackwardArgs& args) {
  check_workspace("layernorm_backward", layernorm_backward_workspace(args, 1),
                  context.workspace_bytes);
  float* partials = reinterpret_cast<float*>(context.workspace);
  const int64_t blocks = blocks_of(args.R, kRowBlock), columns = partial_columns(args);
  const int64_t first_dbias = args.dweight ? args.C : 0;
  with_type(args.dtype, [&](auto value) {
    context.pool->run(blocks, [&](int64_t block, int) {
      float* sums = partials + block * columns;
      if (columns > 0) __builtin_memset(sums, 0, static_cast<size_t>(columns) * sizeof(float));
      const int64_t end = lesser(args.R, (block + 1) * kRowBlock);
      for (int64_t r = block * kRowBlock; r < end; ++r) {
        norm_row_backward<decltype(value)>(args, r, args.dweight ? sums : nullptr,
                                           args.dbias ? sums + first_dbias : nullptr);
      }
    });
  });
  with_type(args.grad_dtype, [&](auto gradient) {
    const auto finish = [&](void* to, int64_t first) {
      if (!to) return;
      add_partials(context, partials, blocks, columns, first, args.C,
                   static_cast<decltype(gradient)*>(to), args.accumulate);
    };
    finish(args.dweight, 0);
    finish(args.dbias, first_dbias);
  });
}

}  // namespace weft::WEFT_LEVEL
