// kernel/cuda/gelu.cu: x times the normal distribution function of x, and its gradient.
#include "kernel/cuda/dispatch.h"
#include "kernel/cuda/gelu_tanh.h"
#include "kernel/cuda/launch.h"
#include "kernel/cuda/ops.h"

namespace weft::cuda {
namespace {

constexpr int kThreads = 256;
constexpr float kRootHalf = 0.707106781f;       // sqrt(1 / 2)
constexpr float kDensityAtZero = 0.398942280f;  // 1 / sqrt(2 pi)

template <typename T>
__device__ __forceinline__ Gelu exact(float x) {
  const float below = fmaf(erff(x * kRootHalf), 0.5f, 0.5f);
  return {below, fmaf(x, exp_for(T{}, x * x * -0.5f) * kDensityAtZero, below)};
}

template <typename T, bool kTanh>
__device__ __forceinline__ Gelu gelu_of(float x) {
  if constexpr (kTanh) return with_tanh<T>(x);
  return exact<T>(x);
}

template <typename T, int kWidth, bool kTanh>
__global__ void __launch_bounds__(kThreads) gelu_kernel(int64_t n, const T* x, T* y) {
  const int64_t i = (int64_t{blockIdx.x} * kThreads + threadIdx.x) * kWidth;
  if (i >= n) return;
  float v[kWidth];
  load(x + i, v);
#pragma unroll
  for (int k = 0; k < kWidth; ++k) v[k] *= gelu_of<T, kTanh>(v[k]).below;
  store(y + i, v);
}

template <typename T, int kWidth, bool kTanh>
__global__ void __launch_bounds__(kThreads)
    gelu_backward_kernel(int64_t n, const T* dy, const T* x, T* dx, T* y) {
  const int64_t i = (int64_t{blockIdx.x} * kThreads + threadIdx.x) * kWidth;
  if (i >= n) return;
  float d[kWidth], v[kWidth];
  load(dy + i, d);
  load(x + i, v);
#pragma unroll
  for (int k = 0; k < kWidth; ++k) {
    const Gelu at = gelu_of<T, kTanh>(v[k]);
    d[k] *= at.slope;
    v[k] *= at.below;
  }
  store(dx + i, d);
  if (y) store(y + i, v);
}

}  // namespace

void gelu(const Context& context, const GeluArgs& args) {
  with_type(args.dtype, [&](auto value) {
    using T = decltype(value);
    with_width<T>(is_vectored<T>(args.n, {args.x, args.y}), [&](auto width) {
      const auto kernel =
          args.approximate_tanh ? gelu_kernel<T, width, true> : gelu_kernel<T, width, false>;
      launch(context, "gelu", kernel, ceil_div(args.n, kThreads * width), kThreads, 0, args.n,
             args.x, args.y);
    });
  });
}

void gelu_backward(const Context& context, const GeluBackwardArgs& args) {
  with_type(args.dtype, [&](auto value) {
    using T = decltype(value);
    const bool vectored = is_vectored<T>(args.n, {args.dy, args.x, args.dx, args.y});
    with_width<T>(vectored, [&](auto width) {
      const auto kernel = args.approximate_tanh ? gelu_backward_kernel<T, width, true>
                                                : gelu_backward_kernel<T, width, false>;
      launch(context, "gelu_backward", kernel, ceil_div(args.n, kThreads * width), kThreads, 0,
             args.n, args.dy, args.x, args.dx, args.y);
    });
  });
}

}  // namespace weft::cuda
