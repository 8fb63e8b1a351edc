// kernel/cuda/layernorm.cu: layer norm with residual add.
#include "kernel/cuda/dispatch.h"
#include "kernel/cuda/launch.h"
#include "kernel/cuda/norm_rows.h"
#include "kernel/cuda/ops.h"

namespace weft::cuda {
namespace {

struct Statistics {
  float mean, rstd;
};

// For the row of which `s` is this thread's share: first the mean, then the squares around it.
template <typename T, int kWidth>
__device__ __forceinline__ Statistics statistics_of(const RowShare<T, kWidth>& s, int vectors,
                                                    int64_t C, float eps) {
  using Share = RowShare<T, kWidth>;
  float sum = 0.0f, squares = 0.0f;
#pragma unroll
  for (int k = 0; k < Share::kCount; ++k) {
    if (static_cast<int>(threadIdx.x + k * blockDim.x) >= vectors) break;
    float v[kWidth];
    unpack(s.raw[k], v);
#pragma unroll
    for (int j = 0; j < kWidth; ++j) sum += v[j];
  }
  const float mean = row_sum(sum, 0) / static_cast<float>(C);
#pragma unroll
  for (int k = 0; k < Share::kCount; ++k) {
    if (static_cast<int>(threadIdx.x + k * blockDim.x) >= vectors) break;
    float v[kWidth];
    unpack(s.raw[k], v);
#pragma unroll
    for (int j = 0; j < kWidth; ++j) squares = fmaf(v[j] - mean, v[j] - mean, squares);
  }
  return {mean, 1.0f / sqrtf(row_sum(squares, 1) / static_cast<float>(C) + eps)};
}

// s = x + residual, rounded, in place of x; written to args.sum where needed.
template <typename T, int kWidth>
__device__ __forceinline__ void add_residual(const LayerNormArgs& args, int64_t base, int vectors,
                                             RowShare<T, kWidth>& s) {
  using Share = RowShare<T, kWidth>;
  Share other;
  if (args.residual) other.read(static_cast<const T*>(args.residual) + base, vectors);
#pragma unroll
  for (int k = 0; k < Share::kCount; ++k) {
    const int i = threadIdx.x + k * blockDim.x;
    if (i >= vectors) break;
    if (args.residual) {
      float a[kWidth], b[kWidth];
      unpack(s.raw[k], a);
      unpack(other.raw[k], b);
#pragma unroll
      for (int j = 0; j < kWidth; ++j) a[j] += b[j];
      pack(a, s.raw[k]);
    }
    if (args.sum) store_raw(static_cast<T*>(args.sum) + base + i * kWidth, s.raw[k]);
  }
}

template <typename T, int kWidth, int kThreads>
__global__ void __launch_bounds__(kThreads) layernorm_kernel(LayerNormArgs args) {
  using Share = RowShare<T, kWidth>;
  const int64_t r = int64_t{blockIdx.x} * blockDim.y + threadIdx.y;
  const int64_t base = r * args.C;
  const int vectors = r < args.R ? static_cast<int>(args.C / kWidth) : 0;  // past the end: nothing
  Share s;
  s.read(static_cast<const T*>(args.x) + base, vectors);
  Statistics of_row{};
  if (args.reuse_statistics) {
    if (vectors > 0) of_row = {args.mean[r], args.rstd[r]};
  } else {
    add_residual(args, base, vectors, s);
    of_row = statistics_of(s, vectors, args.C, args.eps);
    if (threadIdx.x == 0 && vectors > 0) {
      args.mean[r] = of_row.mean;
      args.rstd[r] = of_row.rstd;
    }
  }
  if (!args.y) return;
#pragma unroll
  for (int k = 0; k < Share::kCount; ++k) {
    const int i = threadIdx.x + k * blockDim.x;
    if (i >= vectors) break;
    float v[kWidth], w[kWidth], b[kWidth] = {};
    unpack(s.raw[k], v);
    load(static_cast<const T*>(args.weight) + i * kWidth, w);
    if (args.bias) load(static_cast<const T*>(args.bias) + i * kWidth, b);
#pragma unroll
    for (int j = 0; j < kWidth; ++j) v[j] = fmaf((v[j] - of_row.mean) * of_row.rstd, w[j], b[j]);
    store(static_cast<T*>(args.y) + base + i * kWidth, v);
  }
}

constexpr int kUsualThreads = 128;

}  // namespace

void layernorm(const Context& context, const LayerNormArgs& args) {
  const int threads = threads_of_row(args.C);
  const int rows = max(1, kUsualThreads / threads);
  with_type(args.dtype, [&](auto value) {
    using T = decltype(value);
    const bool vectored =
        is_vectored<T>(args.C, {args.x, args.residual, args.weight, args.bias, args.sum, args.y});
    with_width<T>(vectored, [&](auto width) {
      const auto kernel = threads <= kUsualThreads ? layernorm_kernel<T, width, kUsualThreads>
                                                   : layernorm_kernel<T, width, kMaxRowThreads>;
      launch(context, "layernorm", kernel, ceil_div(args.R, rows), dim3(threads, rows), 0, args);
    });
  });
}

}  // namespace weft::cuda
