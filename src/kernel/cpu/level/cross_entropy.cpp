// kernel/cpu/level/cross_entropy.cpp: the loss of each row of logits and, in place, its gradient.
//
// The row is read once for the log-sum-exp, in blocks that stay in the first-level cache: a block's
// maximum, then its sum of exp; the sum so far is rescaled where the maximum grew. Sums of blocks
// are added in float64. The gradient reads and writes the row once more.
#include "kernel/cpu/level/ops.h"
#include "kernel/cpu/level/rows.h"
#include "kernel/cpu/level/simd_math.h"

namespace weft::WEFT_LEVEL {
namespace {

constexpr int64_t kBlock = 2048;

struct Softmax {
  float highest;
  double sum;  // of exp(x - highest)
};

template <typename T>
[[gnu::flatten]] float highest_of(const T* x, int64_t n) {
  const float lowest = -__builtin_inff();
  Vecs highest = splat(lowest);
  each_four(n, [&](int64_t i, int chain, auto part) {
    auto& most = chain_of(highest, chain, part);
    most = maximum(most, fill_rest(load(x + i, part), lowest, part));
  });
  return max_all(highest);
}

template <typename T>
[[gnu::flatten]] float sum_of_exp(const T* x, int64_t n, float highest) {
  Vecs sums = zero();
  each_four(n, [&](int64_t i, int chain, auto part) {
    const auto p = exp2_of_small((load(x + i, part) - splat(highest)) * splat(kLog2E));
    auto& sum = chain_of(sums, chain, part);
    sum = sum + fill_rest(p, 0.0f, part);
  });
  return sum_all(sums);
}

template <typename T>
Softmax read_row(const T* x, int64_t V) {
  Softmax row = {-__builtin_inff(), 0.0};
  for (int64_t first = 0; first < V; first += kBlock) {
    const int64_t n = lesser(kBlock, V - first);
    const float highest = highest_of(x + first, n);
    if (highest > row.highest) {
      row.sum *= static_cast<double>(exp(row.highest - highest));
      row.highest = highest;
    }
    row.sum += static_cast<double>(sum_of_exp(x + first, n, row.highest));
  }
  return row;
}

// x <- exp(x - highest) * scale, less one at the target (negative: none).
template <typename T>
[[gnu::flatten]] void scale_row(T* x, int64_t V, int64_t target, float highest, float scale) {
  const float at_target = target < 0 ? 0.0f : to_float(x[target]);
  each_four(V, [&](int64_t i, int, auto part) {
    const auto away = (load(x + i, part) - splat(highest)) * splat(kLog2E);
    store(x + i, exp2_of_small(away) * splat(scale), part);
  });
  if (target < 0) return;
  const float p = exp(at_target - highest) * scale;
  store(x + target, splat(p - 1.0f), Part{1});
}

template <typename T>
void cross_entropy_row(const CrossEntropyArgs& args, int64_t r) {
  T* x = static_cast<T*>(args.logits) + r * args.V;
  const int64_t target = args.targets[r];
  if (target < 0) {
    args.losses[r] = 0.0f;
    if (args.with_gradient) __builtin_memset(x, 0, static_cast<size_t>(args.V) * sizeof(T));
    return;
  }
  const Softmax row = read_row(x, args.V);
  args.losses[r] = log(static_cast<float>(row.sum)) + (row.highest - to_float(x[target]));
  if (args.with_gradient) {
    scale_row(x, args.V, target, row.highest, static_cast<float>(1.0 / row.sum));
  }
}

}  // namespace

void cross_entropy(const Context& context, const CrossEntropyArgs& args) {
  with_type(args.dtype, [&](auto value) {
    each_row(context, args.R, args.V,
             [&](int64_t r) { cross_entropy_row<decltype(value)>(args, r); });
  });
}

void softmax_stats(const Context& context, const SoftmaxStatsArgs& args) {
  with_type(args.dtype, [&](auto value) {
    const auto* logits = static_cast<const decltype(value)*>(args.logits);
    each_row(context, args.R, args.V, [&](int64_t r) {
      const Softmax row = read_row(logits + r * args.ld, args.V);
      args.highest[r] = row.highest;
      args.sum[r] = row.sum;
    });
  });
}

void softmax_gradient(const Context& context, const SoftmaxGradientArgs& args) {
  with_type(args.dtype, [&](auto value) {
    auto* logits = static_cast<decltype(value)*>(args.logits);
    each_row(context, args.R, args.V, [&](int64_t r) {
      scale_row(logits + r * args.ld, args.V, args.targets[r], args.highest[r], args.scale[r]);
    });
  });
}

}  // namespace weft::WEFT_LEVEL
