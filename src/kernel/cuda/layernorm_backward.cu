// kernel/cuda/layernorm_backward.cu: the gradient of the norm and, in two stages, of weight and
// bias.
//
// With n = (s - mean) rstd and g = dy weight: dx = rstd (g - mean(g) - n mean(g n)) + dsum; dweight
// += dy n; dbias += dy. Rows are divided as in rmsnorm_backward.cu: each thread keeps the sums of
// its own channels in registers.
#include <algorithm>

#include "kernel/cpu/workspace.h"
#include "kernel/cuda/columns.h"
#include "kernel/cuda/dispatch.h"
#include "kernel/cuda/launch.h"
#include "kernel/cuda/norm_rows.h"
#include "kernel/cuda/ops.h"

namespace weft::cuda {
namespace {

constexpr int kUsualThreads = 256;
constexpr int64_t kMostBlocks = 264;  // two on each of 132 multiprocessors
// Of a row, per thread: two sums for each must stay in registers while a multiprocessor runs two
// blocks, of which one reads while the other adds and writes.
constexpr int kFewValues = kValues / 2;

bool fits_few(int64_t C) { return C <= int64_t{kUsualThreads} * kFewValues; }
int threads_of(int64_t C) { return fits_few(C) ? threads_of_row(2 * C) : threads_of_row(C); }
int rows_of_block(int64_t C) { return std::max(1, kUsualThreads / threads_of(C)); }

int64_t num_blocks(int64_t R, int64_t C) {
  return std::min(kMostBlocks, ceil_div(R, rows_of_block(C)));
}

// Columns of a row of partial sums: dweight, then dbias, each where it is needed.
int64_t partial_columns(const LayerNormBackwardArgs& args) {
  return (args.dweight ? args.C : 0) + (args.dbias ? args.C : 0);
}

template <typename T, int kWidth, int kMost>
__global__ void __launch_bounds__(kMost == kFewValues ? kUsualThreads : kMaxRowThreads,
                                  kMost == kFewValues && sizeof(T) == 2 ? 2 : 1)
    layernorm_backward_kernel(LayerNormBackwardArgs args, float* partials, int64_t columns) {
  using Share = RowShare<T, kWidth, kMost>;
  const int64_t step = int64_t{gridDim.x} * blockDim.y;
  const float inverse_C = 1.0f / static_cast<float>(args.C);
  const T* weight = static_cast<const T*>(args.weight);  // small: it stays in L1
  float dweight[kMost] = {}, dbias[kMost] = {};
  int turn = 0;
  for (int64_t first = int64_t{blockIdx.x} * blockDim.y; first < args.R; first += step, turn += 2) {
    const int64_t r = first + threadIdx.y;
    const int64_t base = r * args.C;
    const int vectors = r < args.R ? static_cast<int>(args.C / kWidth) : 0;
    Share dy, s, dsum;
    dy.read(static_cast<const T*>(args.dy) + base, vectors);
    s.read(static_cast<const T*>(args.s) + base, vectors);
    if (args.dsum) dsum.read(static_cast<const T*>(args.dsum) + base, vectors);
    const float mean = vectors > 0 ? args.mean[r] : 0.0f, rstd = vectors > 0 ? args.rstd[r] : 0.0f;
    float sum_g = 0.0f, sum_gn = 0.0f;
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
        const float normed = (v[j] - mean) * rstd, g = d[j] * w[j];
        sum_g += g;
        sum_gn = fmaf(g, normed, sum_gn);
        dweight[k * kWidth + j] = fmaf(d[j], normed, dweight[k * kWidth + j]);
        dbias[k * kWidth + j] += d[j];
      }
    }
    const float mean_g = row_sum(sum_g, turn) * inverse_C;
    const float mean_gn = row_sum(sum_gn, turn + 1) * inverse_C;
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
        const float normed = (v[j] - mean) * rstd;
        d[j] = fmaf(fmaf(-normed, mean_gn, d[j] * w[j] - mean_g), rstd, more[j]);
      }
      store(static_cast<T*>(args.dx) + base + i * kWidth, d);
    }
  }
  float* to = partials + blockIdx.x * columns;
  if (args.dweight) write_partial<kWidth>(dweight, args.C, to);
  if (args.dweight && args.dbias) __syncthreads();
  if (args.dbias) write_partial<kWidth>(dbias, args.C, args.dweight ? to + args.C : to);
}

// The second stage: rows of partial sums to where their columns belong.
void finish(const Context& context, const LayerNormBackwardArgs& args, const float* partials,
            int64_t blocks, int64_t columns) {
  if (columns == 0) return;
  ColumnParts to{};
  for (void* gradient : {args.dweight, args.dbias}) {
    if (!gradient) continue;
    to.parts[to.count] = gradient;
    to.ends[to.count] = (to.count + 1) * args.C;
    ++to.count;
  }
  add_partials(context, partials, blocks, columns, to, args.grad_dtype, args.accumulate);
}

}  // namespace

size_t layernorm_backward_workspace(const LayerNormBackwardArgs& args, int) {
  return static_cast<size_t>(num_blocks(args.R, args.C) * partial_columns(args)) * sizeof(float);
}

void layernorm_backward(const Context& context, const LayerNormBackwardArgs& args) {
  check_workspace("layernorm_backward", layernorm_backward_workspace(args, 1),
                  context.workspace_bytes);
  float* partials = reinterpret_cast<float*>(context.workspace);
  const int threads = threads_of(args.C), rows = rows_of_block(args.C);
  const int64_t blocks = num_blocks(args.R, args.C), columns = partial_columns(args);
  const size_t shared = rows == 1 ? 0 : static_cast<size_t>(rows * args.C) * sizeof(float);
  with_type(args.dtype, [&](auto value) {
    using T = decltype(value);
    const bool vectored =
        is_vectored<T>(args.C, {args.dy, args.dsum, args.s, args.weight, args.dx});
    with_width<T>(vectored, [&](auto width) {
      const auto kernel = fits_few(args.C) ? layernorm_backward_kernel<T, width, kFewValues>
                                           : layernorm_backward_kernel<T, width, kValues>;
      launch(context, "layernorm_backward", kernel, blocks, dim3(threads, rows), shared, args,
             partials, columns);
    });
  });
  finish(context, args, partials, blocks, columns);
}

}  // namespace weft::cuda
