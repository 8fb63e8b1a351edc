// kernel/cuda/add.cu: sums of two tensors, and fp32 sums that are rounded.
#include <algorithm>

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

template <typename T, int kWidth>
__global__ void store_sum_kernel(int64_t n, const float* sum, T* out, bool accumulate) {
  const int64_t i = (int64_t{blockIdx.x} * kThreads + threadIdx.x) * kWidth;
  if (i >= n) return;
  float x[kWidth], old[kWidth];
  load(sum + i, x);
  if (accumulate) {
    load(out + i, old);
#pragma unroll
    for (int k = 0; k < kWidth; ++k) x[k] = old[k] + x[k];
  }
  store(out + i, x);
}

// Elements first to end. What a block reads it has read before it writes.
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
      const int64_t blocks = ceil_div(args.n, kThreads * width);
      launch(context, "add", add_kernel<T, width>, blocks, kThreads, 0, args.n, args.a, args.b,
             args.out);
    });
  });
}

void store_sum(const Context& context, const StoreSumArgs& args) {
  with_type(args.out_dtype, [&](auto value) {
    using T = decltype(value);
    with_width<float>(is_vectored<float>(args.n, {args.sum, args.out}), [&](auto width) {
      launch(context, "store_sum", store_sum_kernel<T, width>, ceil_div(args.n, kThreads * width),
             kThreads, 0, args.n, args.sum, args.out, args.accumulate);
    });
  });
}

void round_sum(const Context& context, const RoundSumArgs& args) {
  with_type(args.sum_dtype, [&](auto sum) {
    with_type(args.dtype, [&](auto value) {
      using S = decltype(sum);
      using T = decltype(value);
      using Wider = std::conditional_t<sizeof(S) == 4, S, T>;
      const bool vectored = is_vectored<Wider>(args.columns, {args.sum, args.bias, args.out});
      with_width<Wider>(vectored,
                        [&](auto width) { launch_round_sum<S, T, width>(context, args); });
    });
  });
}

}  // namespace weft::cuda
