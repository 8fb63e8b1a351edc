// kernel/cuda/gate_rows.h: how threads divide rows of gate and up (swiglu, geglu).
#pragma once

#include "kernel/cuda/launch.h"

namespace weft::cuda {

inline constexpr int kGateThreads = 256;

// Where a thread works: a vector of row r. Rows have a whole number of blocks.
struct GatePlace {
  int64_t r, f;
};
template <int kWidth>
__device__ __forceinline__ GatePlace gate_place(int64_t F) {
  const unsigned blocks =
      static_cast<unsigned>((F + kGateThreads * kWidth - 1) / (kGateThreads * kWidth));
  const unsigned r = blockIdx.x / blocks;
  return {r, int64_t{(blockIdx.x - r * blocks) * kGateThreads + threadIdx.x} * kWidth};
}

inline int64_t gate_blocks(int64_t R, int64_t F, int width) {
  return R * ceil_div(F, int64_t{kGateThreads} * width);
}

}  // namespace weft::cuda
