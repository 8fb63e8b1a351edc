// kernel/cuda/squares.cu: sums of squares by cells of 256 elements, of one tensor or of many.
//
// A warp adds a cell: lane i takes elements 8 i to 8 i + 7 in order, then the lanes are added in a
// tree. In float64; no other work and no address changes the order.
#include "kernel/cuda/dispatch.h"
#include "kernel/cuda/launch.h"
#include "kernel/cuda/ops.h"
#include "kernel/cuda/reduce.h"
#include "tensor/cell.h"

namespace weft::cuda {
namespace {

constexpr int kWarps = 8;
constexpr int kCells = 4;  // of a warp: read before the first is added
constexpr int kLane = static_cast<int>(kNormCell) / kWarp;
constexpr int64_t kBlock = kWarps * kCells * kNormCell;  // elements

// What one block adds: up to kBlock elements of a tensor, from `first` on.
struct Span {
  const void* x;
  double* partials;
  int64_t first, n;  // n of the whole tensor
};

// A lane's part of the cell that begins at x and has n elements left.
template <typename T>
__device__ __forceinline__ void load_lane(const T* x, int64_t n, bool vectored, float (&v)[kLane]) {
  const int at = threadIdx.x * kLane;
  if (vectored && n >= kNormCell) {
#pragma unroll
    for (int k = 0; k < kLane; k += kPack<T>) {
      float some[kPack<T>];
      load(x + at + k, some);
#pragma unroll
      for (int j = 0; j < kPack<T>; ++j) v[k + j] = some[j];
    }
    return;
  }
#pragma unroll
  for (int k = 0; k < kLane; ++k) v[k] = at + k < n ? load_one(x + at + k) : 0.0f;
}

template <typename T>
__device__ __forceinline__ void add_cells(const Span& span) {
  const int64_t first = span.first / kNormCell + threadIdx.y * kCells;  // of this warp
  const T* x = static_cast<const T*>(span.x);
  const bool vectored = reinterpret_cast<uintptr_t>(x) % 16 == 0;
  float v[kCells][kLane];
#pragma unroll
  for (int i = 0; i < kCells; ++i) {
    const int64_t begin = (first + i) * kNormCell;
    load_lane(x + begin, span.n - begin, vectored, v[i]);
  }
#pragma unroll
  for (int i = 0; i < kCells; ++i) {
    double sum = 0.0;
#pragma unroll
    for (int k = 0; k < kLane; ++k) {
      const double wide = v[i][k];
      sum = fma(wide, wide, sum);
    }
    sum = warp_sum(sum);
    if (threadIdx.x == 0 && (first + i) * kNormCell < span.n) span.partials[first + i] = sum;
  }
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
