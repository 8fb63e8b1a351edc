// kernel/cuda/reduce.cu: sums and maxima over ranks, in the tree of comm/comm.h.
#include "kernel/cuda/launch.h"
#include "kernel/cuda/ops.h"
#include "kernel/cuda/values.h"

namespace weft::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int64_t kMostBlocks = 1024;

struct AsFloat {
  using Element = float;
  using Value = float;
  static __device__ float load(const float* at) { return *at; }
  static __device__ void store(float* at, float v) { *at = v; }
};
struct AsDouble {
  using Element = double;
  using Value = double;
  static __device__ double load(const double* at) { return *at; }
  static __device__ void store(double* at, double v) { *at = v; }
};
// Integers wrap.
struct AsInt64 {
  using Element = int64_t;
  using Value = int64_t;
  static __device__ int64_t load(const int64_t* at) { return *at; }
  static __device__ void store(int64_t* at, int64_t v) { *at = v; }
};
template <typename T>
struct AsShort {  // bf16 or fp16
  using Element = T;
  using Value = float;
  static __device__ float load(const T* at) { return load_one(at); }
  static __device__ void store(T* at, float v) { store_one(at, v); }
};

template <typename V>
__device__ V join(V a, V b, bool is_max) {
  if (!is_max) return a + b;
  if (a != a) return a;  // the maximum of anything and NaN is NaN
  return b != b || b > a ? b : a;
}

template <typename As>
__global__ void reduce_kernel(ReduceTreeArgs a) {
  using Element = typename As::Element;
  using Value = typename As::Value;
  const int64_t step = static_cast<int64_t>(gridDim.x) * blockDim.x;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < a.count;
       i += step) {
    Value tree[kMaxReduced];
#pragma unroll
    for (int r = 0; r < kMaxReduced; ++r) {
      if (r < a.num_in) tree[r] = As::load(static_cast<const Element*>(a.in[r]) + i);
    }
#pragma unroll
    for (int width = 1; width < kMaxReduced; width *= 2) {
#pragma unroll
      for (int r = 0; r < kMaxReduced; r += 2 * width) {
        if (r + width < a.num_in) tree[r] = join(tree[r], tree[r + width], a.is_max);
      }
    }
#pragma unroll
    for (int r = 0; r < kMaxReduced; ++r) {
      if (r < a.num_out) As::store(static_cast<Element*>(a.out[r]) + i, tree[0]);
    }
  }
}

}  // namespace

void reduce_tree(const Context& context, const ReduceTreeArgs& args) {
  int64_t blocks = ceil_div(args.count, kThreads);
  if (blocks > kMostBlocks) blocks = kMostBlocks;
  const auto start = [&](void (*kernel)(ReduceTreeArgs)) {
    launch(context, "reduce_tree", kernel, dim3(static_cast<unsigned>(blocks)), dim3(kThreads), 0,
           args);
  };
  switch (args.dtype) {
    case Dtype::kF32:
      return start(reduce_kernel<AsFloat>);
    case Dtype::kF64:
      return start(reduce_kernel<AsDouble>);
    case Dtype::kI64:
      return start(reduce_kernel<AsInt64>);
    case Dtype::kF16:
      return start(reduce_kernel<AsShort<Half>>);
    default:
      return start(reduce_kernel<AsShort<Bf16>>);
  }
}

}  // namespace weft::cuda
