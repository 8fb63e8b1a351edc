// kernel/cuda/swiglu.cu: silu(gate) * up and its gradient.
#include "kernel/cuda/dispatch.h"
#include "kernel/cuda/gate_rows.h"
#include "kernel/cuda/launch.h"
#include "kernel/cuda/ops.h"

namespace weft::cuda {
namespace {

template <typename T>
__device__ __forceinline__ float sigmoid(float v) {
  return divide_for(T{}, 1.0f, 1.0f + exp_for(T{}, -v));
}

template <typename T, int kWidth>
__global__ void __launch_bounds__(kGateThreads) swiglu_kernel(int64_t F, const T* gate_up, T* h) {
  const GatePlace at = gate_place<kWidth>(F);
  if (at.f >= F) return;
  float gate[kWidth], up[kWidth];
  load(gate_up + 2 * at.r * F + at.f, gate);
  load(gate_up + (2 * at.r + 1) * F + at.f, up);
#pragma unroll
  for (int k = 0; k < kWidth; ++k) gate[k] = gate[k] * sigmoid<T>(gate[k]) * up[k];
  store(h + at.r * F + at.f, gate);
}

template <typename T, int kWidth>
__global__ void __launch_bounds__(kGateThreads)
    swiglu_backward_kernel(int64_t F, const T* dh, const T* gate_up, T* dgate_up, T* h) {
  const GatePlace at = gate_place<kWidth>(F);
  if (at.f >= F) return;
  float gate[kWidth], up[kWidth], d[kWidth], again[kWidth];
  load(gate_up + 2 * at.r * F + at.f, gate);
  load(gate_up + (2 * at.r + 1) * F + at.f, up);
  load(dh + at.r * F + at.f, d);
#pragma unroll
  for (int k = 0; k < kWidth; ++k) {
    const float s = sigmoid<T>(gate[k]), through = d[k] * s;
    const float slope = fmaf(gate[k], 1.0f - s, 1.0f);
    again[k] = gate[k] * s * up[k];
    d[k] = through * up[k] * slope;
    up[k] = through * gate[k];
  }
  store(dgate_up + 2 * at.r * F + at.f, d);
  store(dgate_up + (2 * at.r + 1) * F + at.f, up);
  if (h) store(h + at.r * F + at.f, again);
}

}  // namespace

void swiglu(const Context& context, const SwigluArgs& args) {
  with_type(args.dtype, [&](auto value) {
    using T = decltype(value);
    with_width<T>(is_vectored<T>(args.F, {args.gate_up, args.h}), [&](auto width) {
      launch(context, "swiglu", swiglu_kernel<T, width>, gate_blocks(args.R, args.F, width),
             kGateThreads, 0, args.F, args.gate_up, args.h);
    });
  });
}

void swiglu_backward(const Context& context, const SwigluBackwardArgs& args) {
  with_type(args.dtype, [&](auto value) {
    using T = decltype(value);
    const bool vectored = is_vectored<T>(args.F, {args.dh, args.gate_up, args.dgate_up, args.h});
    with_width<T>(vectored, [&](auto width) {
      launch(context, "swiglu_backward", swiglu_backward_kernel<T, width>,
             gate_blocks(args.R, args.F, width), kGateThreads, 0, args.F, args.dh, args.gate_up,
             args.dgate_up, args.h);
    });
  });
}

}  // namespace weft::cuda
