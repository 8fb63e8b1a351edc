// kernel/ref/attention_backward.cpp: gradient of attention.
//
// With P = exp(S - lse), S = scale q·k + bias: dP = dout·v, delta = dout·out, dS = P (dP - delta);
// dq = sum over keys of scale dS k, dk = sum over queries and heads of scale dS q, dv = sum of
// P dout, and an element of the bias table gets the dS of all pairs that read it. Under dropout,
// with its mask M: dP = M (dout·v), dv = sum of P M dout; delta is the same sum.
#include <cmath>

#include "kernel/attention_bias.h"
#include "kernel/attention_segments.h"
#include "kernel/dropout.h"
#include "kernel/ref/ref.h"

namespace weft::ref {
namespace {

struct Backward {
  const AttentionBackwardArgs& args;
  int64_t group = args.H / args.G;

  double dot(const HeadsIn& x, int64_t at_x, const HeadsIn& y, int64_t at_y) const {
    double sum = 0.0;
    for (int64_t d = 0; d < args.D; ++d) {
      sum += get(x.data, args.dtype, at_x + d) * get(y.data, args.dtype, at_y + d);
    }
    return sum;
  }

  double keep(int64_t b, int64_t h, int64_t t, int64_t j) const {
    const double rate = args.dropout.rate;
    if (rate == 0) return 1.0;
    const HeadDropout dropout = head_dropout(args.dropout, b, h);
    return dropout_word(dropout.key, t, j) < dropout.threshold ? 0.0 : 1.0 / (1.0 - rate);
  }

  struct Pair {
    double p, ds;  // p: P M
  };
  Pair pair(int64_t b, int64_t h, int64_t t, int64_t j, int64_t origin) const {
    const int64_t q = args.q.at(b, t, h), k = args.k.at(b, j, h / group);
    const int64_t v = args.v.at(b, j, h / group), dout = args.dout.at(b, t, h);
    const double lse = args.lse[(b * args.H + h) * args.T + t];
    const double s =
        dot(args.q, q, args.k, k) * args.scale + attention_bias(head_bias(args, h), j - origin);
    const double p = std::exp(s - lse);
    const double m = keep(b, h, t, j);
    const double dp = m * dot(args.dout, dout, args.v, v);
    const double delta = dot(args.dout, dout, args.out, args.out.at(b, t, h));
    return {p * m, p * (dp - delta)};
  }

  void query(int64_t b, int64_t h, int64_t t) const {
    double dq[kMaxHeadDim] = {};
    const SeenKeys seen = seen_keys(args, b, t);
    for (int64_t j = seen.begin; j < seen.end; ++j) {
      const double ds = pair(b, h, t, j, seen.origin).ds * args.scale;
      const int64_t k = args.k.at(b, j, h / group);
      for (int64_t d = 0; d < args.D; ++d) dq[d] += ds * get(args.k.data, args.dtype, k + d);
    }
    const int64_t at = args.dq.at(b, t, h);
    for (int64_t d = 0; d < args.D; ++d) put(args.dq.data, args.dtype, at + d, dq[d]);
  }

  void key(int64_t b, int64_t g, int64_t j) const {
    double dk[kMaxHeadDim] = {}, dv[kMaxHeadDim] = {};
    for (int64_t h = g * group; h < (g + 1) * group; ++h) {
      for (int64_t t = 0; t < args.T; ++t) {
        const SeenKeys seen = seen_keys(args, b, t);
        if (j < seen.begin || j >= seen.end) continue;
        const Pair at = pair(b, h, t, j, seen.origin);
        const int64_t q = args.q.at(b, t, h), dout = args.dout.at(b, t, h);
        for (int64_t d = 0; d < args.D; ++d) {
          dk[d] += at.ds * args.scale * get(args.q.data, args.dtype, q + d);
          dv[d] += at.p * get(args.dout.data, args.dtype, dout + d);
        }
      }
    }
    const int64_t at_k = args.dk.at(b, j, g), at_v = args.dv.at(b, j, g);
    for (int64_t d = 0; d < args.D; ++d) {
      put(args.dk.data, args.dtype, at_k + d, dk[d]);
      put(args.dv.data, args.dtype, at_v + d, dv[d]);
    }
  }

  void add_to_table(int64_t h, double* sums) const {
    for (int64_t b = 0; b < args.B; ++b) {
      for (int64_t t = 0; t < args.T; ++t) {
        const SeenKeys seen = seen_keys(args, b, t);
        for (int64_t j = seen.begin; j < seen.end; ++j) {
          const int bucket = relative_bucket(args.bias.buckets, j - seen.origin);
          sums[bucket] += pair(b, h, t, j, seen.origin).ds;
        }
      }
    }
  }

  void table() const {
    for (int64_t h = 0; h < args.H; ++h) {
      double sums[2 * kMostBuckets] = {};
      add_to_table(h, sums);
      for (int64_t bucket = 0; bucket < args.bias.buckets.count; ++bucket) {
        const int64_t at = bucket * args.H + h;
        double sum = sums[bucket];
        if (args.accumulate) sum = plus_fp32(sum, get(args.dtable, args.grad_dtype, at));
        put(args.dtable, args.grad_dtype, at, sum);
      }
    }
  }
};

}  // namespace

void attention_backward(const Context&, const AttentionBackwardArgs& args) {
  const Backward backward = {args};
  for (int64_t b = 0; b < args.B; ++b) {
    for (int64_t t = 0; t < args.T; ++t) {
      for (int64_t h = 0; h < args.H; ++h) backward.query(b, h, t);
    }
    for (int64_t j = 0; j < args.S; ++j) {
      for (int64_t g = 0; g < args.G; ++g) backward.key(b, g, j);
    }
  }
  if (args.dtable) backward.table();
}

}  // namespace weft::ref
