// kernel/cpu/level/adamw.cpp: the optimizer's step, one pass over memory.
#include "kernel/cpu/level/ops.h"
#include "kernel/cpu/level/rows.h"
#include "kernel/cpu/level/simd_four.h"

namespace weft::WEFT_LEVEL {
namespace {

struct Factors {
  Vec grad_scale, keep, one_minus_beta1, beta2, one_minus_beta2, step, root_scale, eps;
};

Vec rounded(double factor) { return splat(static_cast<float>(factor)); }

Factors factors_of(double grad_scale, const AdamwScalars& s) {
  return {.grad_scale = rounded(grad_scale),
          .keep = rounded(1.0 - s.lr * s.weight_decay),
          .one_minus_beta1 = rounded(1.0 - s.beta1),
          .beta2 = rounded(s.beta2),
          .one_minus_beta2 = rounded(1.0 - s.beta2),
          .step = rounded(s.lr / s.bias1),
          .root_scale = rounded(1.0 / __builtin_sqrt(s.bias2)),
          .eps = rounded(s.eps)};
}

template <typename P, typename Grad, typename State>
[[gnu::flatten]] void step_piece(const AdamwArgs& args, const Factors& f, int64_t first,
                                 int64_t count) {
  P* p = static_cast<P*>(args.p) + first;
  float* master = args.master ? args.master + first : nullptr;
  const Grad* grad = static_cast<const Grad*>(args.grad) + first;
  State* m = static_cast<State*>(args.m) + first;
  State* v = static_cast<State*>(args.v) + first;
  each_four(count, [&](int64_t i, int, auto part) {
    const auto g = load(grad + i, part) * f.grad_scale;
    const auto old = load(m + i, part);
    const auto mean = fma(g - old, f.one_minus_beta1, old);
    const auto square = fma(f.one_minus_beta2 * g, g, load(v + i, part) * f.beta2);
    const auto root = fma(square_root(square), f.root_scale, f.eps);
    const auto value = (master ? load(master + i, part) : load(p + i, part)) * f.keep;
    const auto next = value - f.step * mean / root;
    store(m + i, mean, part);
    store(v + i, square, part);
    if (master) store(master + i, next, part);
    store(p + i, next, part);
  });
}

}  // namespace

void adamw(const Context& context, const AdamwArgs& args) {
  const Factors factors = factors_of(args.grad_scale, args.scalars);
  with_type(args.dtype, [&](auto value) {
    with_type(args.grad_dtype, [&](auto gradient) {
      with_type(args.state_dtype, [&](auto state) {
        each_piece(context, args.n, [&](int64_t first, int64_t count) {
          step_piece<decltype(value), decltype(gradient), decltype(state)>(args, factors, first,
                                                                           count);
        });
      });
    });
  });
}

}  // namespace weft::WEFT_LEVEL
