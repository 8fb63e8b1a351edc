// kernel/cuda/rmsnorm_backward.cu: the gradient of the norm and, in two stages, of its weight.
//
// With n = s rstd and g = dy weight: dx = rstd (g - n mean(g n)) + dsum; dweight += dy n, this n as
// the weight multiplied it (rms_weight.h). A block takes every num_blocks-th group of rows; each
// thread keeps the weight's gradient of its own channels in registers, and the block's rows side by
// side are added at the end, in order.
#include <algorithm>

#include "kernel/cpu/workspace.h"
#include "kernel/cuda/columns.h"
#include "kernel/cuda/dispatch.h"
#include "kernel/cuda/launch.h"
#include "kernel/cuda/norm_rows.h"
#include "kernel/cuda/ops.h"
#include "kernel/cuda/rms_weight.h"

namespace weft::cuda {
namespace {

constexpr int kUsualThreads = 256;
constexpr int64_t kMostBlocks = 264;  // two on each of 132 multiprocessors

int rows_of_block(int64_t C) { return std::max(1, kUsualThreads / threads_of_row(C)); }

int64_t num_blocks(int64_t R, int64_t C) {
  return std::min(kMostBlocks, ceil_div(R, rows_of_block(C)));
}

template <typename T, int kWidth, int kThreads, bool kOffset>
__global__ void __launch_bounds__(kThreads, kThreads == kUsualThreads && sizeof(T) == 2 ? 2 : 1)
    rmsnorm_backward_kernel(RmsNormBackwardArgs args, float* partials) {
  using Share = RowShare<T, kWidth>;
  const int64_t step = int64_t{gridDim.x} * blockDim.y;
  const float inverse_C = 1.0f / static_cast<float>(args.C);
  const T* weight = static_cast<const T*>(args.weight);  // small: it stays in L1
  float dweight[kValues] = {};
  int turn = 0;
  for (int64_t first = int64_t{blockIdx.x} * blockDim.y; first < args.R; first += step, ++turn) {
    const int64_t r = first + threadIdx.y;
    const int64_t base = r * args.C;
    const int vectors = r < args.R ? static_cast<int>(args.C / kWidth) : 0;
    Share dy, s, dsum;
    dy.read(static_cast<const T*>(args.dy) + base, vectors);
    s.read(static_cast<const T*>(args.s) + base, vectors);
    if (args.dsum) dsum.read(static_cast<const T*>(args.dsum) + base, vectors);
    const float rstd = vectors > 0 ? args.rstd[r] : 0.0f;
    float sum = 0.0f;
#pragma unroll
    for (int k = 0; k < Share::kCount; ++k) {
      const int i = threadIdx.x + k * blockDim.x;
      if (i >= vectors) break;
      float d[kWidth], v[kWidth], w[kWidth];
      unpack(dy.raw[k], d);
      unpack(s.raw[k], v);
      load(weight + i * kWidth, w);
#pragma unroll
      for (int j = 0; j < kWidth; ++j) {
        const float normed = v[j] * rstd;
        sum = fmaf(d[j] * offset_weight<kOffset>(w[j]), normed, sum);
        float& to = dweight[k * kWidth + j];
        to = fmaf(d[j], weighted_part<T, kOffset>(normed), to);
      }
    }
    const float mean = row_sum(sum, turn) * inverse_C;
#pragma unroll
    for (int k = 0; k < Share::kCount; ++k) {
      const int i = threadIdx.x + k * blockDim.x;
      if (i >= vectors) break;
      float d[kWidth], v[kWidth], w[kWidth], more[kWidth] = {};
      unpack(dy.raw[k], d);
      unpack(s.raw[k], v);
      load(weight + i * kWidth, w);
      if (args.dsum) unpack(dsum.raw[k], more);
#pragma unroll
      for (int j = 0; j < kWidth; ++j) {
        const float g = d[j] * offset_weight<kOffset>(w[j]);
        d[j] = fmaf(fmaf(-(v[j] * rstd), mean, g), rstd, more[j]);
      }
      store(static_cast<T*>(args.dx) + base + i * kWidth, d);
    }
  }
  if (args.dweight) write_partial<kWidth>(dweight, args.C, partials + blockIdx.x * args.C);
}

}  // namespace

size_t rmsnorm_backward_workspace(const RmsNormBackwardArgs& args, int) {
  if (!args.dweight) return 0;
  return static_cast<size_t>(num_blocks(args.R, args.C) * args.C) * sizeof(float);
}

void rmsnorm_backward(const Context& context, const RmsNormBackwardArgs& args) {
  check_workspace("rmsnorm_backward", rmsnorm_backward_workspace(args, 1), context.workspace_bytes);
  float* partials = reinterpret_cast<float*>(context.workspace);
  const int threads = threads_of_row(args.C), rows = rows_of_block(args.C);
  const int64_t blocks = num_blocks(args.R, args.C);
  const size_t shared = rows == 1 ? 0 : static_cast<size_t>(rows * args.C) * sizeof(float);
  with_type(args.dtype, [&](auto value) {
    using T = decltype(value);
    const bool vectored =
        is_vectored<T>(args.C, {args.dy, args.dsum, args.s, args.weight, args.dx});
    with_width<T>(vectored, [&](auto width) {
      with_offset(args.weight_offset, [&](auto offset) {
        constexpr int kWidth = decltype(width)::value;
        constexpr bool kOffset = decltype(offset)::value;
        const auto kernel = threads <= kUsualThreads
                                ? rmsnorm_backward_kernel<T, kWidth, kUsualThreads, kOffset>
                                : rmsnorm_backward_kernel<T, kWidth, kMaxRowThreads, kOffset>;
        launch(context, "rmsnorm_backward", kernel, blocks, dim3(threads, rows), shared, args,
               partials);
      });
    });
  });
  if (!args.dweight) return;
  ColumnParts to{};
  to.count = 1;
  to.parts[0] = args.dweight;
  to.ends[0] = args.C;
  add_partials(context, partials, blocks, args.C, to, args.grad_dtype, args.accumulate);
}

}  // namespace weft::cuda
