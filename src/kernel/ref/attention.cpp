// kernel/ref/attention.cpp: attention, query by query.
#include <algorithm>
#include <cmath>
#include <limits>

#include "kernel/attention_bias.h"
#include "kernel/attention_segments.h"
#include "kernel/dropout.h"
#include "kernel/ref/ref.h"

namespace weft::ref {
namespace {

// One query against keys begin .. count - 1; key j starts at element k + j * k_step.
struct Query {
  Dtype dtype;
  int64_t D, begin, count;
  double scale;
  const void* q_data;
  int64_t q;
  const void* k_data;
  int64_t k, k_step;
  const void* v_data;
  int64_t v, v_step;
  int64_t t = 0;  // its position
  double rate = 0;
  HeadDropout dropout = {};
  HeadBias bias;  // by distances from `origin`
  int64_t origin = 0;

  // The factor of key j's probability.
  double keep(int64_t j) const {
    if (rate == 0) return 1.0;
    return dropout_word(dropout.key, t, j) < dropout.threshold ? 0.0 : 1.0 / (1.0 - rate);
  }
};

double score(const Query& query, int64_t j) {
  double sum = 0.0;
  for (int64_t d = 0; d < query.D; ++d) {
    sum += get(query.q_data, query.dtype, query.q + d) *
           get(query.k_data, query.dtype, query.k + j * query.k_step + d);
  }
  return sum * query.scale + attention_bias(query.bias, j - query.origin);
}

// Writes D elements of out from `at`; returns the log-sum-exp.
double attend(const Query& query, void* out, int64_t at) {
  double highest = -std::numeric_limits<double>::infinity();
  for (int64_t j = query.begin; j < query.count; ++j) highest = std::max(highest, score(query, j));
  double total = 0.0;
  double sums[kMaxHeadDim] = {};
  for (int64_t j = query.begin; j < query.count; ++j) {
    const double p = std::exp(score(query, j) - highest);
    total += p;
    for (int64_t d = 0; d < query.D; ++d) {
      sums[d] += p * query.keep(j) * get(query.v_data, query.dtype, query.v + j * query.v_step + d);
    }
  }
  for (int64_t d = 0; d < query.D; ++d) put(out, query.dtype, at + d, sums[d] / total);
  return highest + std::log(total);
}

void zero_row(void* out, Dtype dtype, int64_t at, int64_t n) {
  for (int64_t i = 0; i < n; ++i) put(out, dtype, at + i, 0.0);
}

void attend_head(const AttentionArgs& args, int64_t b, int64_t h) {
  const int64_t g = h / (args.H / args.G);
  const HeadDropout dropout = head_dropout(args.dropout, b, h);
  for (int64_t t = 0; t < args.T; ++t) {
    const int64_t at = args.out.at(b, t, h);
    const SeenKeys seen = seen_keys(args, b, t);
    double lse = 0.0;
    if (seen.begin >= seen.end) {
      zero_row(args.out.data, args.dtype, at, args.D);
    } else {
      const Query query = {.dtype = args.dtype,
                           .D = args.D,
                           .begin = seen.begin,
                           .count = seen.end,
                           .scale = args.scale,
                           .q_data = args.q.data,
                           .q = args.q.at(b, t, h),
                           .k_data = args.k.data,
                           .k = args.k.at(b, 0, g),
                           .k_step = args.k.position,
                           .v_data = args.v.data,
                           .v = args.v.at(b, 0, g),
                           .v_step = args.v.position,
                           .t = t,
                           .rate = args.dropout.rate,
                           .dropout = dropout,
                           .bias = head_bias(args, h),
                           .origin = seen.origin};
      lse = attend(query, args.out.data, at);
    }
    if (args.lse) args.lse[(b * args.H + h) * args.T + t] = static_cast<float>(lse);
  }
}

}  // namespace

void attention(const Context&, const AttentionArgs& args) {
  for (int64_t b = 0; b < args.B; ++b) {
    for (int64_t h = 0; h < args.H; ++h) attend_head(args, b, h);
  }
}

}  // namespace weft::ref
