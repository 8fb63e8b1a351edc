// kernel/cuda/geglu.cu: gelu(gate) * up and its gradient, GELU in its tanh form.
#include "kernel/cuda/dispatch.h"
#include "kernel/cuda/gate_rows.h"
#include "kernel/cuda/gelu_tanh.h"
#include "kernel/cuda/launch.h"
#include "kernel/cuda/ops.h"

namespace weft::cuda {
namespace {

template <typename T, int kWidth>
__global__ void __launch_bounds__(kGateThreads) geglu_kernel(int64_t F, const T* gate_up, T* h) {
  const GatePlace at = gate_place<kWidth>(F);
  if (at.f >= F) return;
  float gate[kWidth], up[kWidth];
  load(gate_up + 2 * at.r * F + at.f, gate);
  load(gate_up + (2 * at.r + 1) * F + at.f, up);
#pragma unroll
  for (int k = 0; k < kWidth; ++k) gate[k] = gate[k] * with_tanh<T>(gate[k]).below * up[k];
  store(h + at.r * F + at.f, gate);
}

template <typename T, int kWidth>
__global__ void __launch_bounds__(kGateThreads)
    geglu_backward_kernel(int64_t F, const T* dh, const T* gate_up, T* dgate_up, T* h) {
  const GatePlace at = gate_place<kWidth>(F);
  if (at.f >= F) return;
  float gate[kWidth], up[kWidth], d[kWidth], again[kWidth];
  load(gate_up + 2 * at.r * F + at.f, gate);
  load(gate_up + (2 * at.r + 1) * F + at.f, up);
  load(dh + at.r * F + at.f, d);
#pragma unroll
  for (int k = 0; k < kWidth; ++k) {
    const Gelu gelu = with_tanh<T>(gate[k]);
    const float y = gate[k] * gelu.below, through = d[k];
    again[k] = y * up[k];
    d[k] = through * up[k] * gelu.slope;
    up[k] = through * y;
  }
  store(dgate_up + 2 * at.r * F + at.f, d);
  store(dgate_up + (2 * at.r + 1) * F + at.f, up);
  if (h) store(h + at.r * F + at.f, again);
}

}  // namespace

void geglu(const Context& context, const GegluArgs& args) {
  with_type(args.dtype, [&](auto value) {
    using T = decltype(value);
    with_width<T>(is_vectored<T>(args.F, {args.gate_up, args.h}), [&](auto width) {
      launch(context, "geglu", geglu_kernel<T, width>, gate_blocks(args.R, args.F, width),
             kGateThreads, 0, args.F, args.gate_up, args.h);
    });
  });
}

void geglu_backward(const Context& context, const GegluBackwardArgs& args) {
  with_type(args.dtype, [&](auto value) {
    using T = decltype(value);
    const bool vectored = is_vectored<T>(args.F, {args.dh, args.gate_up, args.dgate_up, args.h});
    with_width<T>(vectored, [&](auto width) {
      launch(context, "geglu_backward", geglu_backward_kernel<T, width>,
             gate_blocks(args.R, args.F, width), kGateThreads, 0, args.F, args.dh, args.gate_up,
             args.dgate_up, args.h);
    });
  });
}

}  // namespace weft::cuda
