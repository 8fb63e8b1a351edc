// kernel/ref/qk_norm.cpp: root-mean-square norm of every head of q and of k, and its gradient.
#include <cmath>

#include "kernel/ref/ref.h"

namespace weft::ref {
namespace {

// A head of q or of k is a row of rmsnorm.
struct Row {
  int64_t at;          // its first element in x
  int64_t rstd;        // its index in rstd
  const void* weight;  // of q or of k
};
template <typename Args>
Row row_of(const Args& args, int64_t r, int64_t head) {
  return {(r * (args.H + 2 * args.G) + head) * args.D, r * (args.H + args.G) + head,
          head < args.H ? args.q_weight : args.k_weight};
}

template <typename Args>
double head_weight(const Args& args, const Row& row, int64_t d) {
  const double weight = get(row.weight, args.dtype, d);
  return args.weight_offset == 0 ? weight : 1.0 + weight;
}

// What the weight multiplies: rounded, unless the weight has an offset.
template <typename Args>
double head_normed(const Args& args, const Row& row, int64_t d) {
  const double normed = get(args.x, args.dtype, row.at + d) * args.rstd[row.rstd];
  return args.weight_offset == 0 ? rounded(args.dtype, normed) : normed;
}

template <typename Args>
void copy_v(const Args& args, const void* from, void* to) {
  const int64_t columns = (args.H + 2 * args.G) * args.D;
  for (int64_t r = 0; r < args.R; ++r) {
    for (int64_t c = (args.H + args.G) * args.D; c < columns; ++c) {
      put(to, args.dtype, r * columns + c, get(from, args.dtype, r * columns + c));
    }
  }
}

void norm_head(const QkNormArgs& args, const Row& row) {
  double squares = 0.0;
  for (int64_t d = 0; d < args.D; ++d) squares += std::pow(get(args.x, args.dtype, row.at + d), 2);
  const double mean = squares / static_cast<double>(args.D);
  args.rstd[row.rstd] = static_cast<float>(1.0 / std::sqrt(mean + args.eps));
  for (int64_t d = 0; d < args.D; ++d) {
    put(args.y, args.dtype, row.at + d, head_normed(args, row, d) * head_weight(args, row, d));
  }
}

// With n = x * rstd and g = dy * weight: dx = rstd * (g - n * mean(g * n)).
void norm_head_backward(const QkNormBackwardArgs& args, const Row& row) {
  const double rstd = args.rstd[row.rstd];
  const auto g = [&](int64_t d) {
    return get(args.dy, args.dtype, row.at + d) * head_weight(args, row, d);
  };
  const auto n = [&](int64_t d) { return get(args.x, args.dtype, row.at + d) * rstd; };
  double mean = 0.0;
  for (int64_t d = 0; d < args.D; ++d) mean += g(d) * n(d) / static_cast<double>(args.D);
  for (int64_t d = 0; d < args.D; ++d) {
    put(args.dx, args.dtype, row.at + d, rstd * (g(d) - n(d) * mean));
  }
}

// The gradient of a weight by one leaf's heads.
void sum_leaf(const QkNormBackwardArgs& args, int64_t first, int64_t count, void* dweight) {
  for (int64_t d = 0; dweight && d < args.D; ++d) {
    double sum = 0.0;
    for (int64_t r = 0; r < args.R; ++r) {
      for (int64_t head = first; head < first + count; ++head) {
        const Row row = row_of(args, r, head);
        sum += get(args.dy, args.dtype, row.at + d) * head_normed(args, row, d);
      }
    }
    if (args.accumulate) sum = plus_fp32(sum, get(dweight, args.grad_dtype, d));
    put(dweight, args.grad_dtype, d, sum);
  }
}

}  // namespace

void qk_norm(const Context&, const QkNormArgs& args) {
  for (int64_t r = 0; r < args.R; ++r) {
    for (int64_t head = 0; head < args.H + args.G; ++head) norm_head(args, row_of(args, r, head));
  }
  copy_v(args, args.x, args.y);
}

// The weights' gradients first: dx may overwrite dy or x.
void qk_norm_backward(const Context&, const QkNormBackwardArgs& args) {
  const int64_t q = args.H / args.leaves, k = args.G / args.leaves;
  for (int leaf = 0; leaf < args.leaves; ++leaf) {
    sum_leaf(args, leaf * q, q, args.dq_weight[leaf]);
    sum_leaf(args, args.H + leaf * k, k, args.dk_weight[leaf]);
  }
  for (int64_t r = 0; r < args.R; ++r) {
    for (int64_t head = 0; head < args.H + args.G; ++head)
      norm_head_backward(args, row_of(args, r, head));
  }
  copy_v(args, args.dy, args.dx);
}

}  // namespace weft::ref
