// kernel/cuda/square_cells.h: a lane's part of a cell of squares (squares.cu).
#pragma once

#include "kernel/cuda/reduce.h"
#include "kernel/cuda/values.h"
#include "tensor/cell.h"

namespace weft::cuda {

inline constexpr int kCellLane = static_cast<int>(kNormCell) / kWarp;  // elements of a lane

// A lane's elements of the cell that begins at x and has n elements left; 0 beyond them.
template <typename T>
__device__ __forceinline__ void load_cell_lane(const T* x, int lane, int64_t n, bool vectored,
                                               float (&v)[kCellLane]) {
  const int at = lane * kCellLane;
  if (vectored && n >= kNormCell) {
#pragma unroll
    for (int k = 0; k < kCellLane; k += kPack<T>) {
      float some[kPack<T>];
      load(x + at + k, some);
#pragma unroll
      for (int j = 0; j < kPack<T>; ++j) v[k + j] = some[j];
    }
    return;
  }
#pragma unroll
  for (int k = 0; k < kCellLane; ++k) v[k] = at + k < n ? load_one(x + at + k) : 0.0f;
}

// In order.
__device__ __forceinline__ double sum_of_squares(const float (&v)[kCellLane]) {
  double sum = 0;
#pragma unroll
  for (int k = 0; k < kCellLane; ++k) {
    const double wide = v[k];
    sum = fma(wide, wide, sum);
  }
  return sum;
}

}  // namespace weft::cuda
