// kernel/cuda/scale.cu: y = x * factor.
#include "kernel/cuda/dispatch.h"
#include "kernel/cuda/launch.h"
#include "kernel/cuda/ops.h"

namespace weft::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kAhead = 4;  // vectors of a thread, all read before the first is used

// Where vector k of this thread begins: a warp's vectors are adjacent.
template <int kWidth>
__device__ __forceinline__ int64_t place_of(int k) {
  return ((int64_t{blockIdx.x} * kAhead + k) * kThreads + threadIdx.x) * kWidth;
}

template <typename T, int kWidth>
__global__ void __launch_bounds__(kThreads)
    scale_kernel(int64_t n, float factor, const T* x, T* y) {
  Raw<T, kWidth> raw[kAhead];
#pragma unroll
  for (int k = 0; k < kAhead; ++k) {
    const int64_t i = place_of<kWidth>(k);
    if (i >= n) break;
    raw[k] = load_raw<kWidth>(x + i);
  }
#pragma unroll
  for (int k = 0; k < kAhead; ++k) {
    const int64_t i = place_of<kWidth>(k);
    if (i >= n) break;
    float v[kWidth];
    unpack(raw[k], v);
#pragma unroll
    for (int j = 0; j < kWidth; ++j) v[j] *= factor;
    store(y + i, v);
  }
}

}  // namespace

void scale(const Context& context, const ScaleArgs& args) {
  with_type(args.dtype, [&](auto value) {
    using T = decltype(value);
    with_width<T>(is_vectored<T>(args.n, {args.x, args.y}), [&](auto width) {
      launch(context, "scale", scale_kernel<T, width>,
             ceil_div(args.n, int64_t{kAhead} * kThreads * width), kThreads, 0, args.n, args.factor,
             args.x, args.y);
    });
  });
}

}  // namespace weft::cuda
