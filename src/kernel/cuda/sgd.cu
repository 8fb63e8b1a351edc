// kernel/cuda/sgd.cu: SGD. The arithmetic is that of kernel/cpu/level/sgd.cpp.
#include "kernel/cuda/ops.h"
#include "kernel/cuda/update.h"

namespace weft::cuda {
namespace {

template <bool kHasMomentum>
struct Sgd {
  static constexpr int kStates = kHasMomentum ? 1 : 0;
  struct Factors {
    float grad_scale, weight_decay, momentum, minus_lr;
  };

  static __host__ __device__ Factors factors_of(double grad_scale, bool decay,
                                                const OptimizerScalars& scalars) {
    const SgdScalars& s = scalars_as<SgdScalars>(scalars);
    return {static_cast<float>(grad_scale), static_cast<float>(decay ? s.weight_decay : 0.0),
            static_cast<float>(s.momentum), static_cast<float>(-s.lr)};
  }

  template <bool kNarrow>
  static __device__ __forceinline__ void step(const Factors& f, float g, float& p, float& momentum,
                                              float&) {
    float step = fmaf(f.weight_decay, p, g * f.grad_scale);
    if constexpr (kHasMomentum) {
      step = fmaf(f.momentum, momentum, step);
      momentum = step;
    }
    p = fmaf(f.minus_lr, step, p);
  }
};

}  // namespace

void sgd(const Context& context, const SgdArgs& args) {
  const UpdateTypes types = {args.dtype, args.grad_dtype, {args.state_dtype, args.state_dtype}};
  const UpdateItem item = {args.n, args.p, args.master, args.grad, {args.momentum, nullptr}, true};
  const OptimizerScalars scalars = OptimizerScalars::from(args.scalars);
  if (args.momentum) {
    launch_update<Sgd<true>>(context, "sgd", types, item, args.grad_scale, scalars);
  } else {
    launch_update<Sgd<false>>(context, "sgd", types, item, args.grad_scale, scalars);
  }
}

void sgd_list(const Context& context, const UpdateListArgs& args) {
  if (args.types.num_states > 0) {
    launch_update_list<Sgd<true>>(context, "sgd_list", args);
  } else {
    launch_update_list<Sgd<false>>(context, "sgd_list", args);
  }
}

}  // namespace weft::cuda
