// kernel/cpu/level/sgd.cpp: SGD's step, one pass over memory.
#include "kernel/cpu/level/ops.h"
#include "kernel/cpu/level/rows.h"
#include "kernel/cpu/level/simd_four.h"

namespace weft::WEFT_LEVEL {
namespace {

struct Factors {
  Vec grad_scale, weight_decay, momentum, minus_lr;
};

Vec rounded(double factor) { return splat(static_cast<float>(factor)); }

template <typename P, typename Grad, typename State>
[[gnu::flatten]] void step_piece(const SgdArgs& args, const Factors& f, int64_t first,
                                 int64_t count) {
  P* p = static_cast<P*>(args.p) + first;
  float* master = args.master ? args.master + first : nullptr;
  const Grad* grad = static_cast<const Grad*>(args.grad) + first;
  State* momentum = args.momentum ? static_cast<State*>(args.momentum) + first : nullptr;
  each_four(count, [&](int64_t i, int, auto part) {
    const auto value = master ? load(master + i, part) : load(p + i, part);
    auto step = fma(f.weight_decay, value, load(grad + i, part) * f.grad_scale);
    if (momentum) {
      step = fma(f.momentum, load(momentum + i, part), step);
      store(momentum + i, step, part);
    }
    const auto next = fma(f.minus_lr, step, value);
    if (master) store(master + i, next, part);
    store(p + i, next, part);
  });
}

}  // namespace

void sgd(const Context& context, const SgdArgs& args) {
  const SgdScalars& s = args.scalars;
  const Factors factors = {rounded(args.grad_scale), rounded(s.weight_decay), rounded(s.momentum),
                           rounded(-s.lr)};
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
