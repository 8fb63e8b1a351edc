// kernel/cuda/gemm_kernels.cu: packs operands, and adds to finished products.
#include <algorithm>
#include <cstdint>

#include "kernel/cuda/dispatch.h"
#include "kernel/cuda/gemm_kernels.h"
#include "kernel/cuda/launch.h"

namespace weft::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int64_t kMostBlocks = 65535;  // of the second and third extent of a grid

// A block covers a rectangle: wide where rows are long, high where they are one element.
struct Rectangle {
  dim3 blocks, threads;
};

Rectangle rectangle(int64_t rows, int64_t columns) {
  unsigned width = 1;
  while (width < static_cast<unsigned>(kThreads) && width < columns) width *= 2;
  const unsigned height = static_cast<unsigned>(kThreads) / width;
  return {dim3(static_cast<unsigned>(ceil_div(columns, width)),
               static_cast<unsigned>(std::min(kMostBlocks, ceil_div(rows, height)))),
          dim3(width, height)};
}

// Bits as they are: 2 or 4 bytes per element.
template <typename Bits>
__global__ void pack_kernel(Stack from, int64_t rows, int64_t columns, Bits* to, int64_t to_ld) {
  const int64_t column = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  const int64_t stride = static_cast<int64_t>(gridDim.y) * blockDim.y;
  if (column >= columns) return;
  int64_t row = static_cast<int64_t>(blockIdx.y) * blockDim.y + threadIdx.y;
  int64_t begin = 0;  // row of the whole at which part p begins
  int p = 0;
  for (; row < rows; row += stride) {
    while (row >= begin + from.rows[p]) begin += from.rows[p++];
    const Bits* part = static_cast<const Bits*>(from.part[p]);
    to[row * to_ld + column] = part ? part[(row - begin) * from.ld + column] : Bits{0};
  }
}

// A thread handles kWidth columns of a row.
template <typename Out, typename Bias, int kWidth>
__global__ void sum_kernel(SumCall call) {
  const int64_t column = (static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x) * kWidth;
  const int64_t stride = static_cast<int64_t>(gridDim.y) * blockDim.y;
  if (column >= call.columns) return;
  Out* out = static_cast<Out*>(call.out);
  float bias[kWidth] = {};
  if (call.bias) load(static_cast<const Bias*>(call.bias) + column, bias);
  int64_t row = static_cast<int64_t>(blockIdx.y) * blockDim.y + threadIdx.y;
  for (; row < call.rows; row += stride) {
    float v[kWidth] = {}, more[kWidth];
    if (call.product) load(call.product + row * call.product_ld + column, v);
    const auto add = [&](const float(&x)[kWidth]) {
#pragma unroll
      for (int k = 0; k < kWidth; ++k) v[k] += x[k];
    };
    for (int i = 0; i < call.num_addends; ++i) {
      load(call.addend[i] + row * call.addend_ld[i] + column, more);
      add(more);
    }
    const int64_t at = row * call.out_ld + column;
    if (call.accumulate) {
      load(out + at, more);
      add(more);
    }
    if (call.bias) add(bias);
    store(out + at, v);
  }
}

constexpr int kWide = 8;

// Whether eight columns at a time can be read everywhere.
bool is_wide(const SumCall& call) {
  uintptr_t bits = reinterpret_cast<uintptr_t>(call.product) |
                   reinterpret_cast<uintptr_t>(call.bias) | reinterpret_cast<uintptr_t>(call.out);
  int64_t steps = call.columns | call.product_ld | call.out_ld;
  for (int i = 0; i < call.num_addends; ++i) {
    bits |= reinterpret_cast<uintptr_t>(call.addend[i]);
    steps |= call.addend_ld[i];
  }
  return bits % 16 == 0 && steps % kWide == 0;
}

template <typename Out, typename Bias>
void start_sum(const Context& context, const SumCall& call) {
  const bool wide = is_wide(call);
  const Rectangle r = rectangle(call.rows, wide ? call.columns / kWide : call.columns);
  auto* kernel = wide ? sum_kernel<Out, Bias, kWide> : sum_kernel<Out, Bias, 1>;
  launch(context, "gemm sum", kernel, r.blocks, r.threads, 0, call);
}

template <typename Out>
__global__ void test_operand_kernel(TestOperand operand) {
  const int64_t stride = static_cast<int64_t>(gridDim.x) * blockDim.x;
  const int64_t count = operand.lines * operand.k, half = operand.k / 2;
  int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  for (; i < count; i += stride) {
    const bool k_is_inner = operand.k_is_inner;
    const int64_t line = k_is_inner ? i / operand.k : i % operand.lines;
    const int64_t k = k_is_inner ? i % operand.k : i / operand.lines;
    const int64_t place = line * half + (k < half ? k : k - half);
    uint64_t z = operand.seed + static_cast<uint64_t>(place) * 0x9e3779b97f4a7c15u;  // splitmix64
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    float v = static_cast<float>(static_cast<int32_t>(z >> 33) - (1 << 30)) * 0x1p-30f;
    if (k >= half && operand.is_negated) v = -v;
    if (k == 2 * half) v = 0.0f;
    const int64_t at = k_is_inner ? line * operand.ld + k : k * operand.ld + line;
    store_one(static_cast<Out*>(operand.to) + at, v);
  }
}

// A thread goes along a row.
template <typename Bits>
__global__ void repeat_kernel(RepeatCall call) {
  const int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  const int64_t stride = static_cast<int64_t>(gridDim.y) * blockDim.y;
  if (i >= call.rows) return;
  const Bits* from = static_cast<const Bits*>(call.from) + i % call.from_rows;
  Bits* to = static_cast<Bits*>(call.to) + i;
  int64_t j = static_cast<int64_t>(blockIdx.y) * blockDim.y + threadIdx.y;
  for (; j < call.columns; j += stride) {
    to[j * call.ld] = from[j % call.from_columns * call.from_ld];
  }
}

template <typename T>
__global__ void compare_kernel(RepeatCall call, int32_t* differs) {
  const int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  const int64_t stride = static_cast<int64_t>(gridDim.y) * blockDim.y;
  if (i >= call.rows) return;
  const float* want = static_cast<const float*>(call.from) + i % call.from_rows;
  const T* got = static_cast<const T*>(call.to) + i;
  int64_t j = static_cast<int64_t>(blockIdx.y) * blockDim.y + threadIdx.y;
  for (; j < call.columns; j += stride) {
    const bool is_same = load_one(got + j * call.ld) == want[j % call.from_columns * call.from_ld];
    if (!is_same) *differs = 1;  // all writers write the same value
  }
}

}  // namespace

void pack_parts(const Context& context, const PackCall& call) {
  int64_t rows = 0;
  for (int p = 0; p < call.from.count; ++p) rows += call.from.rows[p];
  const Rectangle r = rectangle(rows, call.columns);
  if (dtype_bytes(call.dtype) == 2) {
    launch(context, "gemm pack", pack_kernel<uint16_t>, r.blocks, r.threads, 0, call.from, rows,
           call.columns, static_cast<uint16_t*>(call.to), call.to_ld);
  } else {
    launch(context, "gemm pack", pack_kernel<uint32_t>, r.blocks, r.threads, 0, call.from, rows,
           call.columns, static_cast<uint32_t*>(call.to), call.to_ld);
  }
}

void add_up(const Context& context, const SumCall& call) {
  // Of out and bias one may be fp32 and the other not.
  with_type(call.out_dtype, [&](auto out) {
    using Out = decltype(out);
    const auto start = [&](auto bias) { start_sum<Out, decltype(bias)>(context, call); };
    if constexpr (std::is_same_v<Out, float>) {
      with_type(call.bias_dtype, start);
    } else {
      if (call.bias_dtype == call.out_dtype) return start(out);
      start(0.0f);
    }
  });
}

void fill_test_operand(const Context& context, const TestOperand& operand) {
  const int64_t count = operand.lines * operand.k;
  const dim3 blocks(static_cast<unsigned>(std::min<int64_t>(1024, ceil_div(count, kThreads))));
  with_type(operand.dtype, [&](auto type) {
    launch(context, "gemm test operand", test_operand_kernel<decltype(type)>, blocks,
           dim3(kThreads), 0, operand);
  });
}

void repeat(const Context& context, const RepeatCall& call) {
  const Rectangle r = rectangle(call.columns, call.rows);
  auto* kernel = dtype_bytes(call.dtype) == 2 ? repeat_kernel<uint16_t> : repeat_kernel<uint32_t>;
  launch(context, "gemm repeat", kernel, r.blocks, r.threads, 0, call);
}

void compare_repeated(const Context& context, const RepeatCall& call, int32_t* differs) {
  const Rectangle r = rectangle(call.columns, call.rows);
  with_type(call.dtype, [&](auto type) {
    launch(context, "gemm compare", compare_kernel<decltype(type)>, r.blocks, r.threads, 0, call,
           differs);
  });
}

}  // namespace weft::cuda
