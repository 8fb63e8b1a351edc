// kernel/cuda/rmsnorm.cu: root-mean-square norm with residual add.
#include "kernel/cuda/dispatch.h"
#include "kernel/cuda/launch.h"
#include "kernel/cuda/norm_rows.h"
#include "kernel/cuda/ops.h"
#include "kernel/cuda/rms_weight.h"

namespace weft::cuda {
namespace {

template <typename T, int kWidth, int kThreads, bool kOffset>
__global__ void __launch_bounds__(kThreads) rmsnorm_kernel(RmsNormArgs args) {
  using Share = RowShare<T, kWidth>;
  const int64_t r = int64_t{blockIdx.x} * blockDim.y + threadIdx.y;
  const int64_t base = r * args.C;
  const int vectors = r < args.R ? static_cast<int>(args.C / kWidth) : 0;  // past the end: nothing
  const T* weight = static_cast<const T*>(args.weight);
  Share s;
  s.read(static_cast<const T*>(args.x) + base, vectors);
  if (args.residual) {
    Share other;
    other.read(static_cast<const T*>(args.residual) + base, vectors);
#pragma unroll
    for (int k = 0; k < Share::kCount; ++k) {
      float a[kWidth], b[kWidth];
      unpack(s.raw[k], a);
      unpack(other.raw[k], b);
#pragma unroll
      for (int j = 0; j < kWidth; ++j) a[j] += b[j];
      pack(a, s.raw[k]);
    }
  }
  float squares = 0.0f;
#pragma unroll
  for (int k = 0; k < Share::kCount; ++k) {
    const int i = threadIdx.x + k * blockDim.x;
    if (i >= vectors) break;
    float v[kWidth];
    unpack(s.raw[k], v);
#pragma unroll
    for (int j = 0; j < kWidth; ++j) squares = fmaf(v[j], v[j], squares);
    if (args.sum) store_raw(static_cast<T*>(args.sum) + base + i * kWidth, s.raw[k]);
  }
  float rstd;
  if (args.reuse_rstd) {
    rstd = vectors > 0 ? args.rstd[r] : 0.0f;
  } else {
    rstd = 1.0f / sqrtf(row_sum(squares, 0) / static_cast<float>(args.C) + args.eps);
    if (threadIdx.x == 0 && vectors > 0) args.rstd[r] = rstd;
  }
  if (!args.y) return;
#pragma unroll
  for (int k = 0; k < Share::kCount; ++k) {
    const int i = threadIdx.x + k * blockDim.x;
    if (i >= vectors) break;
    float v[kWidth], w[kWidth];
    unpack(s.raw[k], v);
    load(weight + i * kWidth, w);
#pragma unroll
    for (int j = 0; j < kWidth; ++j) {
      v[j] = weighted_part<T, kOffset>(v[j] * rstd) * offset_weight<kOffset>(w[j]);
    }
    store(static_cast<T*>(args.y) + base + i * kWidth, v);
  }
}

constexpr int kUsualThreads = 128;

}  // namespace

void rmsnorm(const Context& context, const RmsNormArgs& args) {
  const int threads = threads_of_row(args.C);
  const int rows = max(1, kUsualThreads / threads);
  with_type(args.dtype, [&](auto value) {
    using T = decltype(value);
    const bool vectored =
        is_vectored<T>(args.C, {args.x, args.residual, args.weight, args.sum, args.y});
    with_width<T>(vectored, [&](auto width) {
      with_offset(args.weight_offset, [&](auto offset) {
        constexpr int kWidth = decltype(width)::value;
        constexpr bool kOffset = decltype(offset)::value;
        const auto kernel = threads <= kUsualThreads
                                ? rmsnorm_kernel<T, kWidth, kUsualThreads, kOffset>
                                : rmsnorm_kernel<T, kWidth, kMaxRowThreads, kOffset>;
        launch(context, "rmsnorm", kernel, ceil_div(args.R, rows), dim3(threads, rows), 0, args);
      });
    });
  });
}

}  // namespace weft::cuda
