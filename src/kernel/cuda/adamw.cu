// kernel/cuda/adamw.cu: AdamW. The arithmetic is that of kernel/cpu/level/adamw.cpp.
#include "kernel/cuda/ops.h"
#include "kernel/cuda/update.h"

namespace weft::cuda {
namespace {

struct Adamw {
  static constexpr int kStates = 2;  // m, v
  struct Factors {
    float grad_scale, keep, one_minus_beta1, beta2, one_minus_beta2, step, root_scale, eps;
  };

  // Formed in double and rounded once, as torch does.
  static __host__ __device__ Factors factors_of(double grad_scale, bool decay,
                                                const OptimizerScalars& scalars) {
    const AdamwScalars& s = scalars_as<AdamwScalars>(scalars);
    const double weight_decay = decay ? s.weight_decay : 0.0;
    return {static_cast<float>(grad_scale),          static_cast<float>(1.0 - s.lr * weight_decay),
            static_cast<float>(1.0 - s.beta1),       static_cast<float>(s.beta2),
            static_cast<float>(1.0 - s.beta2),       static_cast<float>(s.lr / s.bias1),
            static_cast<float>(1.0 / sqrt(s.bias2)), static_cast<float>(s.eps)};
  }

  template <bool kNarrow>
  static __device__ __forceinline__ void step(const Factors& f, float g, float& p, float& m,
                                              float& v) {
    g *= f.grad_scale;
    m = fmaf(g - m, f.one_minus_beta1, m);
    v = fmaf(f.one_minus_beta2 * g, g, v * f.beta2);
    p = p * f.keep - quotient<kNarrow>(f.step * m, fmaf(root<kNarrow>(v), f.root_scale, f.eps));
  }

 private:
  // Results that are kept in 8 bits need no exact root and quotient.
  template <bool kNarrow>
  static __device__ __forceinline__ float root(float v) {
    if constexpr (kNarrow) return sqrt_for(Bf16{}, v);
    return sqrtf(v);
  }
  template <bool kNarrow>
  static __device__ __forceinline__ float quotient(float a, float b) {
    if constexpr (kNarrow) return divide_for(Bf16{}, a, b);
    return a / b;
  }
};

}  // namespace

void adamw(const Context& context, const AdamwArgs& args) {
  const UpdateTypes types = {args.dtype, args.grad_dtype, {args.state_dtype, args.state_dtype}};
  const UpdateItem item = {args.n, args.p, args.master, args.grad, {args.m, args.v}, true};
  launch_update<Adamw>(context, "adamw", types, item, args.grad_scale,
                       OptimizerScalars::from(args.scalars));
}

void adamw_list(const Context& context, const UpdateListArgs& args) {
  launch_update_list<Adamw>(context, "adamw_list", args);
}

}  // namespace weft::cuda
