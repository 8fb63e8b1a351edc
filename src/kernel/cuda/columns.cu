// kernel/cuda/columns.cu: the gradient of a bias, and the second stage of sums over rows.
#include <algorithm>

#include "kernel/cpu/workspace.h"
#include "kernel/cuda/columns.h"
#include "kernel/cuda/dispatch.h"
#include "kernel/cuda/launch.h"
#include "kernel/cuda/ops.h"

namespace weft::cuda {
namespace {

// Second stage: a block adds 32 columns. Thread (x, y) takes rows y, y + 32 ...; then y in order.
constexpr int kSide = 32;

template <typename T>
__global__ void __launch_bounds__(kSide* kSide)
    add_partials_kernel(const float* partials, int64_t rows, int64_t columns, ColumnParts to,
                        bool accumulate) {
  __shared__ float sums[kSide][kSide];
  const int64_t column = int64_t{blockIdx.x} * kSide + threadIdx.x;
  float sum = 0.0f;
  if (column < columns) {
#pragma unroll 8
    for (int64_t r = threadIdx.y; r < rows; r += kSide) sum += partials[r * columns + column];
  }
  sums[threadIdx.y][threadIdx.x] = sum;
  __syncthreads();
  if (threadIdx.y != 0 || column >= columns) return;
#pragma unroll
  for (int y = 1; y < kSide; ++y) sum += sums[y][threadIdx.x];
  int part = 0;
  while (column >= to.ends[part]) ++part;
  T* at = static_cast<T*>(to.parts[part]) + (column - (part == 0 ? 0 : to.ends[part - 1]));
  store_one(at, accumulate ? load_one(at) + sum : sum);
}

// First stage of a bias: a block sums a slab of rows of 32 vectors of columns, a warp every eighth
// row; then its warps are added in order.
constexpr int kWarps = 8;
constexpr int64_t kSlabRows = 64, kMostSlabs = 64;

// Depends only on the rows: columns may be cut over ranks, which must not change the order of a
// sum.
int64_t num_slabs(int64_t R) { return std::clamp<int64_t>(ceil_div(R, kSlabRows), 1, kMostSlabs); }

template <typename T, int kWidth>
__global__ void __launch_bounds__(kWarp* kWarps)
    bias_kernel(int64_t R, int64_t N, int64_t columns, int64_t slab_rows, const T* dy,
                float* partials) {
  __shared__ float sums[kWarps][kWidth][kWarp];
  const int64_t column = (int64_t{blockIdx.x} * kWarp + threadIdx.x) * kWidth;
  const int64_t end = min(R, (int64_t{blockIdx.y} + 1) * slab_rows);
  float sum[kWidth] = {};
  if (column < columns) {
#pragma unroll 4
    for (int64_t r = int64_t{blockIdx.y} * slab_rows + threadIdx.y; r < end; r += kWarps) {
      float v[kWidth];
      load(dy + r * N + column, v);
#pragma unroll
      for (int k = 0; k < kWidth; ++k) sum[k] += v[k];
    }
  }
#pragma unroll
  for (int k = 0; k < kWidth; ++k) sums[threadIdx.y][k][threadIdx.x] = sum[k];
  __syncthreads();
  if (threadIdx.y != 0 || column >= columns) return;
#pragma unroll
  for (int k = 0; k < kWidth; ++k) {
    for (int y = 1; y < kWarps; ++y) sum[k] += sums[y][k][threadIdx.x];
    partials[blockIdx.y * columns + column + k] = sum[k];
  }
}

}  // namespace

void add_partials(const Context& context, const float* partials, int64_t rows, int64_t columns,
                  const ColumnParts& parts, Dtype dtype, bool accumulate) {
  with_gradient_type<float>(dtype, [&](auto gradient) {
    launch(context, "add_partials", add_partials_kernel<decltype(gradient)>,
           ceil_div(columns, kSide), dim3(kSide, kSide), 0, partials, rows, columns, parts,
           accumulate);
  });
}

size_t bias_backward_workspace(const BiasBackwardArgs& args, int) {
  return static_cast<size_t>(num_slabs(args.R) * args.N) * sizeof(float);
}

void bias_backward(const Context& context, const BiasBackwardArgs& args) {
  check_workspace("bias_backward", bias_backward_workspace(args, 1), context.workspace_bytes);
  float* partials = reinterpret_cast<float*>(context.workspace);
  ColumnParts to{};
  to.count = args.count;
  int64_t columns = 0;
  for (int part = 0; part < args.count; ++part) {
    to.parts[part] = args.db[part];
    to.ends[part] = columns += args.cols[part];
  }
  const int64_t slabs = num_slabs(args.R);
  with_type(args.dtype, [&](auto value) {
    using T = decltype(value);
    const bool vectored = is_vectored<T>(args.N, {args.dy}) && is_vectored<T>(columns, {});
    with_width<T>(vectored, [&](auto width) {
      launch(context, "bias_backward", bias_kernel<T, width>,
             dim3(ceil_div(columns, kWarp * width), slabs), dim3(kWarp, kWarps), 0, args.R, args.N,
             columns, ceil_div(args.R, slabs), args.dy, partials);
    });
  });
  add_partials(context, partials, slabs, columns, to, args.grad_dtype, args.accumulate);
}

}  // namespace weft::cuda
