// kernel/cuda/squares.cu: sums of squares by cells of 256 elements, of one tensor or of many.
//
// A warp adds four cells: of each, lane i takes elements 8 i to 8 i + 7 in order, then the lanes
// are added in a tree. In float64; no other work and no address changes the order.
#include "kernel/cuda/dispatch.h"
#include "kernel/cuda/launch.h"
#include "kernel/cuda/ops.h"
#include "kernel/cuda/square_cells.h"

namespace weft::cuda {
namespace {

constexpr int kWarps = 8;
constexpr int kCells = 4;  // of a warp: read before the first is added; sum_of_four
constexpr int64_t kBlock = kWarps * kCells * kNormCell;  // elements

// What one block adds: up to kBlock elements of a tensor, from `first` on.
struct Span {
  const void* x;
  double* partials;
  int64_t first, n;  // n of the whole tensor
};

// The sum of lane / 8's value over the warp, in warp_sum's order: in the first two steps each half
// of the lanes takes over half of the values, so that 6 shuffles do the work of 20.
__device__ __forceinline__ double sum_of_four(const double (&v)[4]) {
  const bool upper = threadIdx.x & 16, odd = threadIdx.x & 8;
  const double even_sum = (upper ? v[2] : v[0]) + __shfl_xor_sync(~0u, upper ? v[0] : v[2], 16);
  const double odd_sum = (upper ? v[3] : v[1]) + __shfl_xor_sync(~0u, upper ? v[1] : v[3], 16);
  double sum = (odd ? odd_sum : even_sum) + __shfl_xor_sync(~0u, odd ? even_sum : odd_sum, 8);
#pragma unroll
  for (int step = 4; step > 0; step /= 2) sum += __shfl_xor_sync(~0u, sum, step);
  return sum;
}

template <typename T>
__device__ __forceinline__ void add_cells(const Span& span) {
  const int64_t first = span.first / kNormCell + threadIdx.y * kCells;  // of this warp
  const T* x = static_cast<const T*>(span.x);
  const bool vectored = reinterpret_cast<uintptr_t>(x) % 16 == 0;
  float v[kCells][kCellLane];
#pragma unroll
  for (int i = 0; i < kCells; ++i) {
    const int64_t begin = (first + i) * kNormCell;
    load_cell_lane(x + begin, threadIdx.x, span.n - begin, vectored, v[i]);
  }
  double sums[kCells];
#pragma unroll
  for (int i = 0; i < kCells; ++i) sums[i] = sum_of_squares(v[i]);
  const double sum = sum_of_four(sums);
  const int64_t cell = first + threadIdx.x / 8;
  if (threadIdx.x % 8 == 0 && cell * kNormCell < span.n) span.partials[cell] = sum;
}

template <typename T>
__global__ void __launch_bounds__(kWarp* kWarps) squares_kernel(SquaresArgs args) {
  add_cells<T>({args.x, args.partials, blockIdx.x * kBlock, args.n});
}

template <typename T>
__global__ void __launch_bounds__(kWarp* kWarps) squares_list_kernel(const Span* spans) {
  add_cells<T>(spans[blockIdx.x]);
}

}  // namespace

void squares(const Context& context, const SquaresArgs& args) {
  with_gradient_type<float>(args.dtype, [&](auto value) {
    launch(context, "squares", squares_kernel<decltype(value)>, ceil_div(args.n, kBlock),
           dim3(kWarp, kWarps), 0, args);
  });
}

size_t squares_table_bytes(const SquaresItem* items, int64_t count) {
  int64_t blocks = 0;
  for (int64_t i = 0; i < count; ++i) blocks += ceil_div(items[i].n, kBlock);
  return static_cast<size_t>(blocks) * sizeof(Span);
}

int64_t squares_table(const SquaresItem* items, int64_t count, std::byte* table) {
  Span* to = reinterpret_cast<Span*>(table);
  for (int64_t i = 0; i < count; ++i) {
    for (int64_t first = 0; first < items[i].n; first += kBlock) {
      *to++ = {items[i].x, items[i].partials, first, items[i].n};
    }
  }
  return to - reinterpret_cast<Span*>(table);
}

void squares_list(const Context& context, const SquaresListArgs& args) {
  with_gradient_type<float>(args.dtype, [&](auto value) {
    launch(context, "squares_list", squares_list_kernel<decltype(value)>, args.num_blocks,
           dim3(kWarp, kWarps), 0, reinterpret_cast<const Span*>(args.table));
  });
}

}  // namespace weft::cuda
