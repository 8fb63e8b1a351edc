// kernel/cuda/relu.cu: the positive part and its gradient.
#include "kernel/cuda/dispatch.h"
#include "kernel/cuda/launch.h"
#include "kernel/cuda/ops.h"

namespace weft::cuda {
namespace {

constexpr int kThreads = 256;

template <typename T, int kWidth>
__global__ void __launch_bounds__(kThreads) relu_kernel(int64_t n, const T* x, T* y) {
  const int64_t i = (int64_t{blockIdx.x} * kThreads + threadIdx.x) * kWidth;
  if (i >= n) return;
  float v[kWidth];
  load(x + i, v);
#pragma unroll
  for (int k = 0; k < kWidth; ++k) v[k] = v[k] < 0.0f ? 0.0f : v[k];
  store(y + i, v);
}

template <typename T, int kWidth>
__global__ void __launch_bounds__(kThreads)
    relu_backward_kernel(int64_t n, const T* dy, const T* y, T* dx) {
  const int64_t i = (int64_t{blockIdx.x} * kThreads + threadIdx.x) * kWidth;
  if (i >= n) return;
  float d[kWidth], v[kWidth];
  load(dy + i, d);
  load(y + i, v);
#pragma unroll
  for (int k = 0; k < kWidth; ++k) d[k] = v[k] > 0.0f ? d[k] : 0.0f;
  store(dx + i, d);
}

}  // namespace

void relu(const Context& context, const ReluArgs& args) {
  with_type(args.dtype, [&](auto value) {
    using T = decltype(value);
    with_width<T>(is_vectored<T>(args.n, {args.x, args.y}), [&](auto width) {
      launch(context, "relu", relu_kernel<T, width>, ceil_div(args.n, kThreads * width), kThreads,
             0, args.n, args.x, args.y);
    });
  });
}

void relu_backward(const Context& context, const ReluBackwardArgs& args) {
  with_type(args.dtype, [&](auto value) {
    using T = decltype(value);
    with_width<T>(is_vectored<T>(args.n, {args.dy, args.y, args.dx}), [&](auto width) {
      launch(context, "relu_backward", relu_backward_kernel<T, width>,
             ceil_div(args.n, kThreads * width), kThreads, 0, args.n, args.dy, args.y, args.dx);
    });
  });
}

}  // namespace weft::cuda
