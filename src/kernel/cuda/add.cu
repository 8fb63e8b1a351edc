// kernel/cuda/add.cu: sums of two tensors, and fp32 sums that are rounded.
#include <algorithm>

#include "kernel/cuda/dispatch.h"
#include "kernel/cuda/launch.h"
#include "kernel/cuda/ops.h"

namespace weft::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kAhead = 2;  // vectors of a thread, all read before the first is used

// Where vector k of this thread begins: a warp's vectors are adjacent.
template <int kWidth>
__device__ __forceinline__ int64_t place_of(int k) {
  return ((int64_t{blockIdx.x} * kAhead + k) * kThreads + threadIdx.x) * kWidth;
}
int64_t num_blocks(int64_t n, int width) { return ceil_div(n, int64_t{kAhead} * kThreads * width); }

template <typename T, int kWidth>
__global__ void __launch_bounds__(kThreads) add_kernel(int64_t n, const T* a, const T* b, T* out) {
  Raw<T, kWidth> left[kAhead], right[kAhead];
#pragma unroll
  for (int k = 0; k < kAhead; ++k) {
    const int64_t i = place_of<kWidth>(k);
    if (i >= n) break;
    left[k] = load_raw<kWidth>(a + i);
    right[k] = load_raw<kWidth>(b + i);
  }
#pragma unroll
  for (int k = 0; k < kAhead; ++k) {
    const int64_t i = place_of<kWidth>(k);
    if (i >= n) break;
    float x[kWidth], y[kWidth];
    unpack(left[k], x);
    unpack(right[k], y);
#pragma unroll
    for (int j = 0; j < kWidth; ++j) x[j] += y[j];
    store(out + i, x);
  }
}

template <typename T, int kWidth>
__global__ void __launch_bounds__(kThreads)
    store_sum_kernel(int64_t n, const float* sum, T* out, bool accumulate) {
  Raw<float, kWidth> sums[kAhead];
  Raw<T, kWidth> old[kAhead];
#pragma unroll
  for (int k = 0; k < kAhead; ++k) {
    const int64_t i = place_of<kWidth>(k);
    if (i >= n) break;
    sums[k] = load_raw<kWidth>(sum + i);
    if (accumulate) old[k] = load_raw<kWidth>(out + i);
  }
#pragma unroll
  for (int k = 0; k < kAhead; ++k) {
    const int64_t i = place_of<kWidth>(k);
    if (i >= n) break;
    float x[kWidth], y[kWidth] = {};
    unpack(sums[k], x);
    if (accumulate) unpack(old[k], y);
#pragma unroll
    for (int j = 0; accumulate && j < kWidth; ++j) x[j] = y[j] + x[j];
    store(out + i, x);
  }
}

// Elements first to end. A block reads everything before it writes.
template <typename S, typename T, int kWidth>
__global__ void round_sum_kernel(int64_t first, int64_t end, int64_t columns, const S* sum,
                                 const T* bias, T* out) {
  const int64_t i = first + (int64_t{blockIdx.x} * kThreads + threadIdx.x) * kWidth;
  float x[kWidth];
  if (i < end) {
    load(sum + i, x);
    if (bias) {
      float b[kWidth];
      load(bias + i % columns, b);
#pragma unroll
      for (int k = 0; k < kWidth; ++k) x[k] += b[k];
    }
  }
  __syncthreads();
  if (i < end) store(out + i, x);
}

// Where out is sum itself and narrower, element i is written over elements read before it, number
// i / 2 on: the first block, then launches of twice as many elements each, none of which writes
// over what it reads.
template <typename S, typename T, int kWidth>
void launch_round_sum(const Context& context, const RoundSumArgs& args) {
  const int64_t n = args.rows * args.columns;
  const bool in_place = args.out == args.sum && sizeof(S) != sizeof(T);
  int64_t first = 0, end = in_place ? std::min<int64_t>(n, kThreads * kWidth) : n;
  while (first < n) {
    launch(context, "round_sum", round_sum_kernel<S, T, kWidth>,
           ceil_div(end - first, kThreads * kWidth), kThreads, 0, first, end, args.columns,
           args.sum, args.bias, args.out);
    first = end;
    end = std::min(n, 2 * first);
  }
}

}  // namespace

void add(const Context& context, const AddArgs& args) {
  with_type(args.dtype, [&](auto value) {
    using T = decltype(value);
    with_width<T>(is_vectored<T>(args.n, {args.a, args.b, args.out}), [&](auto width) {
      launch(context, "add", add_kernel<T, width>, num_blocks(args.n, width), kThreads, 0, args.n,
             args.a, args.b, args.out);
    });
  });
}

void store_sum(const Context& context, const StoreSumArgs& args) {
  with_gradient_type<float>(args.out_dtype, [&](auto value) {
    using T = decltype(value);
    with_width<float>(is_vectored<float>(args.n, {args.sum, args.out}), [&](auto width) {
      launch(context, "store_sum", store_sum_kernel<T, width>, num_blocks(args.n, width), kThreads,
             0, args.n, args.sum, args.out, args.accumulate);
    });
  });
}

// The sum is of fp32 or of the type that it is rounded to.
void round_sum(const Context& context, const RoundSumArgs& args) {
  with_type(args.dtype, [&](auto value) {
    using T = decltype(value);
    const auto start = [&](auto sum) {
      using S = decltype(sum);
      with_width<S>(is_vectored<S>(args.columns, {args.sum, args.bias, args.out}),
                    [&](auto width) { launch_round_sum<S, T, width>(context, args); });
    };
    if (args.sum_dtype == args.dtype) return start(value);
    if (args.sum_dtype != Dtype::kF32) refuse("only fp32 sums are rounded");
    start(0.0f);
  });
}

}  // namespace weft::cuda
