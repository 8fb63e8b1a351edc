// kernel/ref/cached_attention.cpp: attention over a cache, query by query.
#include <cmath>
#include <vector>

#include "kernel/attention_bias.h"
#include "kernel/ref/ref.h"

namespace weft::ref {
namespace {

void attend_cached(const CachedAttentionArgs& args, int64_t b, int64_t t, int64_t h) {
  const SeenKeys seen = args.seen_keys(b, t);
  const HeadBias bias = {args.bias, args.dtype, args.H, h};
  const int64_t q = args.q.at(b, t, h), g = h / (args.H / args.G);
  const auto cached = [&](int64_t j) {
    return ((b * args.max_positions + j) * args.G + g) * args.D;
  };
  std::vector<double> weights;
  double highest = -INFINITY;
  for (int64_t j = seen.begin; j < seen.end; ++j) {
    double sum = 0.0;
    for (int64_t d = 0; d < args.D; ++d) {
      sum += get(args.q.data, args.dtype, q + d) * get(args.k_cache, args.dtype, cached(j) + d);
    }
    weights.push_back(sum * args.scale + attention_bias(bias, j - seen.origin));
    highest = std::fmax(highest, weights.back());
  }
  double total = 0.0;
  for (double& w : weights) total += w = std::exp(w - highest);
  for (int64_t d = 0; d < args.D; ++d) {
    double sum = 0.0;
    for (int64_t j = seen.begin; j < seen.end; ++j) {
      sum += weights[static_cast<size_t>(j - seen.begin)] *
             get(args.v_cache, args.dtype, cached(j) + d);
    }
    put(args.out, args.dtype, ((b * args.T + t) * args.H + h) * args.D + d,
        weights.empty() ? 0.0 : sum / total);
  }
}

}  // namespace

void cached_attention(const Context&, const CachedAttentionArgs& args) {
  for (int64_t b = 0; b < args.B; ++b) {
    for (int64_t t = 0; t < args.T; ++t) {
      for (int64_t h = 0; h < args.H; ++h) attend_cached(args, b, t, h);
    }
  }
}

}  // namespace weft::ref
