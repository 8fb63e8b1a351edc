// kernel/ref/attention_backward.cpp: gradient of causal attention.
//
// With P = exp(S - lse): dP = dout·v, delta = dout·out, dS = P (dP - delta) scale;
// dq = sum over keys of dS k, dk = sum over queries and heads of dS q, dv = sum of P dout.
// Under dropout, with its mask M: dP = M (dout·v), dv = sum of P M dout; delta is the same sum.
#include <cmath>

#include "kernel/dropout.h"
#include "kernel/ref/ref.h"

namespace weft::ref {
namespace {

constexpr int64_t kMaxHeadDim = 256;

struct Backward {
  const AttentionBackwardArgs& args;
  int64_t width = (args.H + 2 * args.G) * args.D;

  int64_t q(int64_t b, int64_t t, int64_t h) const { return (b * args.T + t) * width + h * args.D; }
  int64_t k(int64_t b, int64_t t, int64_t g) const { return q(b, t, args.H + g); }
  int64_t v(int64_t b, int64_t t, int64_t g) const { return q(b, t, args.H + args.G + g); }
  int64_t o(int64_t b, int64_t t, int64_t h) const {
    return ((b * args.T + t) * args.H + h) * args.D;
  }

  // Queries before this one attend; keys are those below the length.
  int64_t num_queries(int64_t b) const { return args.padding_attends ? args.T : args.lengths[b]; }

  // Of the segment that t is in.
  int64_t begin(int64_t b, int64_t t) const {
    return args.positions ? t - args.positions[b * args.T + t] : 0;
  }

  double dot(const void* x, int64_t at_x, const void* y, int64_t at_y) const {
    double sum = 0.0;
    for (int64_t d = 0; d < args.D; ++d) {
      sum += get(x, args.dtype, at_x + d) * get(y, args.dtype, at_y + d);
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
  Pair pair(int64_t b, int64_t h, int64_t t, int64_t j) const {
    const int64_t g = h / (args.H / args.G);
    const double lse = args.lse[(b * args.H + h) * args.T + t];
    const double s = dot(args.qkv, q(b, t, h), args.qkv, k(b, j, g)) * args.scale;
    const double p = std::exp(s - lse);
    const double m = keep(b, h, t, j);
    const double dp = m * dot(args.dout, o(b, t, h), args.qkv, v(b, j, g));
    const double delta = dot(args.dout, o(b, t, h), args.out, o(b, t, h));
    return {p * m, p * (dp - delta) * args.scale};
  }

  void query(int64_t b, int64_t h, int64_t t) const {
    const int64_t g = h / (args.H / args.G);
    double dq[kMaxHeadDim] = {};
    for (int64_t j = begin(b, t); t < num_queries(b) && j <= t && j < args.lengths[b]; ++j) {
      const double ds = pair(b, h, t, j).ds;
      for (int64_t d = 0; d < args.D; ++d) dq[d] += ds * get(args.qkv, args.dtype, k(b, j, g) + d);
    }
    for (int64_t d = 0; d < args.D; ++d) put(args.dqkv, args.dtype, q(b, t, h) + d, dq[d]);
  }

  void key(int64_t b, int64_t g, int64_t j) const {
    const int64_t group = args.H / args.G;
    double dk[kMaxHeadDim] = {}, dv[kMaxHeadDim] = {};
    for (int64_t h = g * group; h < (g + 1) * group; ++h) {
      for (int64_t t = j; j < args.lengths[b] && t < num_queries(b) && begin(b, t) <= j; ++t) {
        const Pair at = pair(b, h, t, j);
        for (int64_t d = 0; d < args.D; ++d) {
          dk[d] += at.ds * get(args.qkv, args.dtype, q(b, t, h) + d);
          dv[d] += at.p * get(args.dout, args.dtype, o(b, t, h) + d);
        }
      }
    }
    for (int64_t d = 0; d < args.D; ++d) {
      put(args.dqkv, args.dtype, k(b, j, g) + d, dk[d]);
      put(args.dqkv, args.dtype, v(b, j, g) + d, dv[d]);
    }
  }
};

}  // namespace

void attention_backward(const Context&, const AttentionBackwardArgs& args) {
  const Backward backward = {args};
  for (int64_t b = 0; b < args.B; ++b) {
    for (int64_t t = 0; t < args.T; ++t) {
      for (int64_t h = 0; h < args.H; ++h) backward.query(b, h, t);
      for (int64_t g = 0; g < args.G; ++g) backward.key(b, g, t);
    }
  }
}

}  // namespace weft::ref
