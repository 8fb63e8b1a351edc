// kernel/cuda/cross_entropy.cu: the loss of each row of logits and, in place, its gradient.
//
// Rows of whole vectors are kept on chip between their two passes (cross_entropy_kept.cu). This
// file handles the others with one block per row, and the softmax in two halves: the row is read
// once for its maximum and its sum of exp, then once more, from the end, for the gradient: what was
// read last may still be in L2.
//
// A row that does not begin at 16 bytes is read one element at a time, and has the bits of one that
// does (see softmax_rows.h for the order).
#include "kernel/cuda/cross_entropy_kept.h"
#include "kernel/cuda/ops.h"
#include "kernel/cuda/softmax_rows.h"

namespace weft::cuda {
namespace {

constexpr int kBlocksPerSm = 1;  // for kept rows; why not 2: docs/kernels/cuda_rows.md
constexpr int kAhead = 4;        // vectors that a thread reads before it uses the first

// Columns one by one; those past the end add nothing.
template <typename T>
__device__ __forceinline__ void gather(const T* x, int count, float (&v)[kPack<T>]) {
#pragma unroll
  for (int k = 0; k < kPack<T>; ++k) v[k] = k < count ? load_one(x + k) : -INFINITY;
}

// This thread's columns.
template <typename T>
__device__ void read_columns(const T* x, int V, float& highest, float& sum) {
  constexpr int kWidth = kPack<T>;
  const int vectors = V / kWidth, step = blockDim.x;
  int i = threadIdx.x;
  float v[kWidth];
  const bool is_aligned = starts_aligned(x);
  if (is_aligned) {
    for (; i + (kAhead - 1) * step < vectors; i += kAhead * step) {
      Raw<T, kWidth> raw[kAhead];
#pragma unroll
      for (int k = 0; k < kAhead; ++k) raw[k] = load_raw<kWidth>(x + (i + k * step) * kWidth);
#pragma unroll
      for (int k = 0; k < kAhead; ++k) add_vector<T>(raw[k], highest, sum);
    }
  }
  for (; i < vectors; i += step) {
    if (is_aligned) {
      load(x + i * kWidth, v);
    } else {
      gather(x + i * kWidth, kWidth, v);
    }
    add_vector<T>(v, highest, sum);
  }
  if (i == vectors && V % kWidth != 0) {  // the next thread in turn handles the rest
    gather(x + i * kWidth, V % kWidth, v);
    add_vector<T>(v, highest, sum);
  }
}

template <typename T>
__device__ __forceinline__ Softmax read_row(const T* x, int V) {
  float highest = kLowest, sum = 0.0f;
  read_columns(x, V, highest, sum);
  return join_threads(highest, sum);
}

// x <- exp(x - highest) * scale, less one at the target (negative: none), where x is at_target; all
// times *factor, a power of two (null: 1).
template <typename T>
__device__ void scale_row(T* x, int V, int target, float at_target, float highest, float scale,
                          const float* factor) {
  const float times = factor ? *factor : 1.0f;
  scale *= times;
  constexpr int kWidth = kPack<T>;
  const int step = blockDim.x;
  const int vectors = starts_aligned(x) ? V / kWidth : 0;
  int i = vectors - 1 - static_cast<int>(threadIdx.x);
  for (; i - (kAhead - 1) * step >= 0; i -= kAhead * step) {
    Raw<T, kWidth> raw[kAhead];
#pragma unroll
    for (int k = 0; k < kAhead; ++k) raw[k] = load_raw<kWidth>(x + (i - k * step) * kWidth);
#pragma unroll
    for (int k = 0; k < kAhead; ++k) {
      scale_vector(x + (i - k * step) * kWidth, raw[k], highest, scale);
    }
  }
  for (; i >= 0; i -= step) {
    scale_vector(x + i * kWidth, load_raw<kWidth>(x + i * kWidth), highest, scale);
  }
#pragma unroll 4
  for (int c = vectors * kWidth + threadIdx.x; c < V; c += step) {
    scale_vector(x + c, load_raw<1>(x + c), highest, scale);
  }
  if (target < 0) return;
  __syncthreads();
  if (threadIdx.x == 0) store_one(x + target, expf(at_target - highest) * scale - times);
}

template <typename T>
__global__ void __launch_bounds__(kSoftmaxThreads) cross_entropy_kernel(CrossEntropyArgs args) {
  const int64_t r = blockIdx.x;
  const int V = static_cast<int>(args.V);
  T* x = static_cast<T*>(args.logits) + r * args.V;
  const int target = args.targets[r];
  if (target < 0) {
    if (threadIdx.x == 0) args.losses[r] = 0.0f;
    if (args.with_gradient) zero_row(x, V);
    return;
  }
  const float at_target = load_one(x + target);  // before the barriers that end the reading
  const Softmax row = read_row<T>(x, V);
  if (threadIdx.x == 0) {
    args.losses[r] = logf(static_cast<float>(row.sum)) + (row.highest - at_target);
  }
  if (!args.with_gradient) return;
  scale_row(x, V, target, at_target, row.highest, static_cast<float>(1.0 / row.sum), args.factor);
}

template <typename T>
__global__ void __launch_bounds__(kSoftmaxThreads) softmax_stats_kernel(SoftmaxStatsArgs args) {
  const int64_t r = blockIdx.x;
  const Softmax row =
      read_row<T>(static_cast<const T*>(args.logits) + r * args.ld, static_cast<int>(args.V));
  if (threadIdx.x != 0) return;
  args.highest[r] = row.highest;
  args.sum[r] = row.sum;
}

template <typename T>
__global__ void __launch_bounds__(kSoftmaxThreads)
    softmax_gradient_kernel(SoftmaxGradientArgs args) {
  const int64_t r = blockIdx.x;
  T* x = static_cast<T*>(args.logits) + r * args.ld;
  const int target = args.targets[r];
  const float at_target = target < 0 ? 0.0f : load_one(x + target);
  __syncthreads();  // the element is read before it is written
  scale_row(x, static_cast<int>(args.V), target, at_target, args.highest[r], args.scale[r],
            args.factor);
}

}  // namespace

void cross_entropy_kept(const Context& context, const KeptCrossEntropyArgs& kept) {
  const CrossEntropyArgs& args = kept.args;
  with_type(args.dtype, [&](auto value) {
    using T = decltype(value);
    if (kept.blocks_per_sm > 0 && args.with_gradient && is_vectored<T>(args.V, {args.logits})) {
      return keep_rows(context, kept);
    }
    launch(context, "cross_entropy", cross_entropy_kernel<T>, args.R, softmax_threads(args.V), 0,
           args);
  });
}

void cross_entropy(const Context& context, const CrossEntropyArgs& args) {
  cross_entropy_kept(context, {args, kBlocksPerSm, INT64_MAX});
}

void softmax_stats(const Context& context, const SoftmaxStatsArgs& args) {
  with_type(args.dtype, [&](auto value) {
    launch(context, "softmax_stats", softmax_stats_kernel<decltype(value)>, args.R,
           softmax_threads(args.V), 0, args);
  });
}

void softmax_gradient(const Context& context, const SoftmaxGradientArgs& args) {
  with_type(args.dtype, [&](auto value) {
    launch(context, "softmax_gradient", softmax_gradient_kernel<decltype(value)>, args.R,
           softmax_threads(args.V), 0, args);
  });
}

}  // namespace weft::cuda
