// kernel/cuda/gemm_own.cu: tiles of D in registers, operands by slices of k through shared memory.
//
// A block of 256 threads computes 128 x 64 elements of D, a thread 8 x 4 of them. A slice of 16 k
// of both operands is in shared memory as fp32, k by k; the next slice is prefetched into registers
// while this one is multiplied. Elements outside the matrices are read as 0, which does not change
// a chain: started at +0 it is never -0.
#include <cstdint>

#include "kernel/cuda/dispatch.h"
#include "kernel/cuda/gemm_own.h"
#include "kernel/cuda/launch.h"

namespace weft::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kRows = 128, kColumns = 64;  // of a block's tile
constexpr int kDepth = 16;                 // k of a slice
constexpr int kQuad = 4;                   // elements of a vector in shared memory
constexpr int kHalves = 2;                 // a thread's rows: four in each half of the tile
constexpr int kAcross = kRows / (kQuad * kHalves);  // threads along m
static_assert(kAcross * (kColumns / kQuad) == kThreads);

// op(A) or op(B): element (line, k), lines are rows of op(A) and columns of op(B).
template <typename In>
struct Lines {
  const In* at;
  int64_t count, k;
  int64_t line_stride, k_stride;
};

// A thread's part of slices of kLines lines: adjacent lanes read adjacent memory. Its elements are
// steps of either lines or k apart.
template <typename In, int kLines>
struct Slices {
  static constexpr int kEach = kLines * kDepth / kThreads;
  const In* at;   // of the first element in the next slice
  int64_t step;   // in memory, from one of its elements to the next
  int64_t ahead;  // and to the next slice
  int lines_left, line_step, k_step;
  int line, k;  // in the slice
  float v[kEach];

  __device__ __forceinline__ Slices(const Lines<In>& from, int64_t first) {
    const int t = static_cast<int>(threadIdx.x);
    const bool k_is_inner = from.k_stride == 1;
    line = k_is_inner ? t / kDepth : t % kLines;
    k = k_is_inner ? t % kDepth : t / kLines;
    line_step = k_is_inner ? kThreads / kDepth : 0;
    k_step = k_is_inner ? 0 : kThreads / kLines;
    at = from.at + (first + line) * from.line_stride + k * from.k_stride;
    step = line_step * from.line_stride + k_step * from.k_stride;
    ahead = kDepth * from.k_stride;
    const int64_t left = from.count - first - line;
    lines_left = static_cast<int>(left < kLines ? left : kLines);
  }
  // k_left: in the next slice, and more.
  __device__ __forceinline__ void read(int64_t k_left) {
    const int ks = static_cast<int>(k_left < kDepth ? k_left : kDepth) - k;
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      const bool is_inside = i * line_step < lines_left && i * k_step < ks;
      v[i] = is_inside ? load_one(at + i * step) : 0.0f;
    }
    at += ahead;
  }
  // Rows of shared memory are a quad longer than a slice: fewer bank conflicts.
  __device__ __forceinline__ void write(float (*to)[kLines + kQuad]) const {
    float* first = &to[k][line];
    const int to_step = k_step * (kLines + kQuad) + line_step;
#pragma unroll
    for (int i = 0; i < kEach; ++i) first[i * to_step] = v[i];
  }
};

// Rows [row, row + 4) of a column; c and bias may be null.
template <typename Out>
__device__ __forceinline__ void finish(float (&v)[kQuad], int64_t row, int64_t m, const Out* c,
                                       const Out* bias, Out* d) {
  if (row + kQuad <= m) {
    float added[kQuad];
    if (c) {
      load<kQuad>(c + row, added);
#pragma unroll
      for (int i = 0; i < kQuad; ++i) v[i] += added[i];
    }
    if (bias) {
      load<kQuad>(bias + row, added);
#pragma unroll
      for (int i = 0; i < kQuad; ++i) v[i] += added[i];
    }
    store<kQuad>(d + row, v);
    return;
  }
#pragma unroll
  for (int i = 0; i < kQuad; ++i) {
    if (row + i >= m) return;
    if (c) v[i] += load_one(c + row + i);
    if (bias) v[i] += load_one(bias + row + i);
    store_one(d + row + i, v[i]);
  }
}

template <typename In, typename Out>
__global__ void __launch_bounds__(kThreads, 2)
    own_kernel(Lines<In> a, Lines<In> b, const Out* c, int64_t ldc, const Out* bias, Out* d,
               int64_t ldd) {
  __shared__ __align__(16) float a_slice[kDepth][kRows + kQuad];
  __shared__ __align__(16) float b_slice[kDepth][kColumns + kQuad];
  const int64_t tiles = (a.count + kRows - 1) / kRows;  // along m
  const int64_t row0 = blockIdx.x % tiles * kRows, column0 = blockIdx.x / tiles * kColumns;
  const int row = static_cast<int>(threadIdx.x) % kAcross * kQuad;
  const int column = static_cast<int>(threadIdx.x) / kAcross * kQuad;
  float sum[kQuad][kHalves][kQuad] = {};  // column, half, row
  Slices<In, kRows> a_next(a, row0);
  Slices<In, kColumns> b_next(b, column0);
  a_next.read(a.k);
  b_next.read(a.k);
  for (int64_t k_left = a.k; k_left > 0; k_left -= kDepth) {
    a_next.write(a_slice);
    b_next.write(b_slice);
    __syncthreads();
    if (k_left > kDepth) {
      a_next.read(k_left - kDepth);
      b_next.read(k_left - kDepth);
    }
#pragma unroll
    for (int k = 0; k < kDepth; ++k) {
      float x[kHalves][kQuad], y[kQuad];
#pragma unroll
      for (int h = 0; h < kHalves; ++h) {
        load<kQuad>(&a_slice[k][h * (kRows / kHalves) + row], x[h]);
      }
      load<kQuad>(&b_slice[k][column], y);
#pragma unroll
      for (int j = 0; j < kQuad; ++j) {
#pragma unroll
        for (int h = 0; h < kHalves; ++h) {
#pragma unroll
          for (int i = 0; i < kQuad; ++i) sum[j][h][i] = fmaf(x[h][i], y[j], sum[j][h][i]);
        }
      }
    }
    __syncthreads();
  }
#pragma unroll
  for (int j = 0; j < kQuad; ++j) {
    const int64_t n = column0 + column + j;
    if (n >= b.count) break;
#pragma unroll
    for (int h = 0; h < kHalves; ++h) {
      finish(sum[j][h], row0 + h * (kRows / kHalves) + row, a.count, c ? c + n * ldc : c, bias,
             d + n * ldd);
    }
  }
}

template <typename In>
Lines<In> lines(const void* at, int64_t count, int64_t k, int64_t ld, bool k_is_inner) {
  return {static_cast<const In*>(at), count, k, k_is_inner ? ld : 1, k_is_inner ? 1 : ld};
}

template <typename In, typename Out>
void start(const Context& context, const LtCall& call) {
  const LtProblem& p = call.problem;
  const auto a = lines<In>(call.a, p.m, p.k, p.lda, p.a_transposed);
  const auto b = lines<In>(call.b, p.n, p.k, p.ldb, !p.b_transposed);
  const int64_t blocks = ceil_div(p.m, kRows) * ceil_div(p.n, kColumns);
  launch(context, "gemm own", own_kernel<In, Out>, dim3(static_cast<unsigned>(blocks)),
         dim3(kThreads), 0, a, b, p.adds_c ? static_cast<const Out*>(call.c) : nullptr, p.ldc,
         static_cast<const Out*>(call.bias), static_cast<Out*>(call.d), p.ldd);
}

}  // namespace

void own_product(const Context& context, const LtCall& call) {
  with_type(call.problem.dtype, [&](auto value) {
    using In = decltype(value);
    if (call.problem.d_dtype == Dtype::kF32) return start<In, float>(context, call);
    start<In, In>(context, call);
  });
}

}  // namespace weft::cuda
