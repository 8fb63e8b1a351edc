// kernel/ref/cross_entropy.cpp: the loss of each row of logits and, in place, its gradient.
#include <algorithm>
#include <cmath>

#include "kernel/ref/ref.h"

namespace weft::ref {

void cross_entropy(const Context&, const CrossEntropyArgs& args) {
  for (int64_t r = 0; r < args.R; ++r) {
    const int64_t base = r * args.V;
    const int64_t target = args.targets[r];
    double highest = get(args.logits, args.dtype, base);
    for (int64_t v = 1; v < args.V; ++v) {
      highest = std::max(highest, get(args.logits, args.dtype, base + v));
    }
    double sum = 0.0;
    for (int64_t v = 0; v < args.V; ++v) {
      sum += std::exp(get(args.logits, args.dtype, base + v) - highest);
    }
    const double lse = highest + std::log(sum);
    args.losses[r] = 0.0f;
    if (target >= 0) {
      args.losses[r] = static_cast<float>(lse - get(args.logits, args.dtype, base + target));
    }
    for (int64_t v = 0; args.with_gradient && v < args.V; ++v) {
      const double p = std::exp(get(args.logits, args.dtype, base + v) - lse);
      const double gradient = target < 0 ? 0.0 : p - (v == target ? 1.0 : 0.0);
      put(args.logits, args.dtype, base + v, gradient * (args.factor ? *args.factor : 1.0));
    }
  }
}

void softmax_stats(const Context&, const SoftmaxStatsArgs& args) {
  for (int64_t r = 0; r < args.R; ++r) {
    const auto logit = [&](int64_t v) { return get(args.logits, args.dtype, r * args.ld + v); };
    double highest = -INFINITY, sum = 0.0;
    for (int64_t v = 0; v < args.V; ++v) highest = std::max(highest, logit(v));
    for (int64_t v = 0; v < args.V; ++v) sum += std::exp(logit(v) - highest);
    args.highest[r] = static_cast<float>(highest);
    args.sum[r] = sum;
  }
}

void softmax_gradient(const Context&, const SoftmaxGradientArgs& args) {
  for (int64_t r = 0; r < args.R; ++r) {
    for (int64_t v = 0; v < args.V; ++v) {
      const int64_t at = r * args.ld + v;
      const double p = std::exp(get(args.logits, args.dtype, at) - args.highest[r]) * args.scale[r];
      const double gradient = p - (v == args.targets[r] ? 1.0 : 0.0);
      put(args.logits, args.dtype, at, gradient * (args.factor ? *args.factor : 1.0));
    }
  }
}

}  // namespace weft::ref
