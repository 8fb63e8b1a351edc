// kernel/cuda/embedding.cu: rows of a table by number, and rows of a tensor.
#include "kernel/cuda/dispatch.h"
#include "kernel/cuda/launch.h"
#include "kernel/cuda/ops.h"

namespace weft::cuda {
namespace {

constexpr int kRows = 8;   // of a block: a warp each
constexpr int kAhead = 4;  // vectors that a lane reads before it writes the first

// to <- from + 0, or zeros where from is null; by one warp. Adding zero turns -0 into +0, as adding
// the zeros of other ranks would.
template <typename T, int kWidth>
__device__ __forceinline__ void copy_row(const T* from, T* to, int64_t C) {
  constexpr int kStep = kWarp * kWidth;
  for (int64_t first = threadIdx.x * kWidth; first < C; first += kAhead * kStep) {
    Raw<T, kWidth> raw[kAhead] = {};
#pragma unroll
    for (int k = 0; k < kAhead; ++k) {
      const int64_t c = first + k * kStep;
      if (from && c < C) raw[k] = load_raw<kWidth>(from + c);
    }
#pragma unroll
    for (int k = 0; k < kAhead; ++k) {
      float v[kWidth];
      unpack(raw[k], v);
#pragma unroll
      for (int j = 0; j < kWidth; ++j) v[j] += 0.0f;
      if (first + k * kStep < C) store(to + first + k * kStep, v);
    }
  }
}

template <typename T, int kWidth>
__global__ void __launch_bounds__(kWarp* kRows) embedding_kernel(EmbeddingArgs args) {
  const int64_t r = int64_t{blockIdx.x} * kRows + threadIdx.y;
  if (r >= args.R) return;
  const int64_t id = args.ids[r] - args.first_id;
  const bool is_here = id >= 0 && id < args.V;
  if (!is_here && args.keep_others) return;
  const T* table = static_cast<const T*>(args.table);
  copy_row<T, kWidth>(is_here ? table + id * args.C : nullptr,
                      static_cast<T*>(args.out) + r * args.C, args.C);
}

template <typename T, int kWidth>
__global__ void __launch_bounds__(kWarp* kRows) take_rows_kernel(TakeRowsArgs args) {
  const int64_t b = int64_t{blockIdx.x} * kRows + threadIdx.y;
  if (b >= args.B) return;
  const T* from = static_cast<const T*>(args.x) + (b * args.T + args.last[b]) * args.C;
  T* to = static_cast<T*>(args.out) + b * args.C;
  for (int64_t c = threadIdx.x * kWidth; c < args.C; c += kWarp * kWidth) {
    store_raw(to + c, load_raw<kWidth>(from + c));
  }
}

}  // namespace

void embedding(const Context& context, const EmbeddingArgs& args) {
  with_type(args.dtype, [&](auto value) {
    using T = decltype(value);
    with_width<T>(is_vectored<T>(args.C, {args.table, args.out}), [&](auto width) {
      launch(context, "embedding", embedding_kernel<T, width>, ceil_div(args.R, kRows),
             dim3(kWarp, kRows), 0, args);
    });
  });
}

void take_rows(const Context& context, const TakeRowsArgs& args) {
  with_type(args.dtype, [&](auto value) {
    using T = decltype(value);
    with_width<T>(is_vectored<T>(args.C, {args.x, args.out}), [&](auto width) {
      launch(context, "take_rows", take_rows_kernel<T, width>, ceil_div(args.B, kRows),
             dim3(kWarp, kRows), 0, args);
    });
  });
}

}  // namespace weft::cuda
