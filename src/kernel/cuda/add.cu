// kernel/cuda/add.cu: sums of two tensors, and fp32 sums that are rounded.
#include "kernel/cuda/dispatch.h"
#include "kernel/cuda/launch.h"
#include "kernel/cuda/ops.h"

namespace weft::cuda {
namespace {

constexpr int kThreads = 256;

template <typename T, int kWidth>
__global__ void add_kernel(int64_t n, const T* a, const T* b, T* out) {
  const int64_t i = (int64_t{blockIdx.x} * kThreads + threadIdx.x) * kWidth;
  if (i >= n) return;
  float x[kWidth], y[kWidth];
  load(a + i, x);
  load(b + i, y);
#pragma unroll
  for (int k = 0; k < kWidth; ++k) x[k] += y[k];
  store(out + i, x);
}

}  // namespace

void add(const Context& context, const AddArgs& args) {
  with_type(args.dtype, [&](auto value) {
    using T = decltype(value);
    with_width<T>(is_vectored<T>(args.n, {args.a, args.b, args.out}), [&](auto width) {
      const int64_t blocks = ceil_div(args.n, kThreads * width);
      launch(context, "add", add_kernel<T, width>, dim3(static_cast<unsigned>(blocks)),
             dim3(kThreads), 0, args.n, args.a, args.b, args.out);
    });
  });
}

}  // namespace weft::cuda
