// kernel/cuda/cross_entropy_kept.cu: cross entropy that reads as much of a row as it can only once.
//
// A block handles rows r, r + gridDim.x, ... Pass 1 computes a row's maximum and sum of exp, pass 2
// writes its gradient. A slice is one 16-byte vector per thread, and a thread uses the same vectors
// in both passes. A row's first slices stay in shared memory between the passes, the next kHeld in
// registers; the rest is read last in pass 1 and, from the end, first in pass 2: it may still be in
// L2. A slice of shared memory whose gradient is written is refilled with the next row's at once,
// so that pass 2 of a row overlaps with reading the next.
//
// No thread reads what another has copied, so threads synchronize only where sums are joined.
#include <algorithm>

#include "kernel/cuda/async_copy.h"
#include "kernel/cuda/cross_entropy_kept.h"
#include "kernel/cuda/softmax_rows.h"

namespace weft::cuda {
namespace {

constexpr int kMaxSlices = 14;  // in shared memory: of 1024 threads, 224 of 227 KiB

// Where an SM holds 1024 or 1536 threads, two blocks of 1024 must not be requested from the
// compiler.
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ == 800 || __CUDA_ARCH__ == 900 || __CUDA_ARCH__ == 1000
constexpr int kMostBlocks = 2;
#else
constexpr int kMostBlocks = 1;
#endif

template <typename T, int kBlocks>
struct KeptRow {
  static constexpr int kWidth = kPack<T>;
  // As many registers as there are: 64 per thread, or 32 with two blocks; fp32's exp needs more.
  static constexpr bool kIsWide = sizeof(T) == 4;
  static constexpr int kHeld = kBlocks == 2 ? 0 : kIsWide ? 4 : 5;
  static constexpr int kAhead =  // vectors read before the first is used
      (kBlocks == 2 ? 2 : 4) / (kIsWide ? 2 : 1);
  using Vector = Raw<T, kWidth>;

  T* shared;
  int vectors, slices;
  Vector held[std::max(kHeld, 1)];

  __device__ __forceinline__ int vector_of(int slice) const {
    return slice * static_cast<int>(blockDim.x) + static_cast<int>(threadIdx.x);
  }
  __device__ __forceinline__ Vector load(const T* x, int i) const {
    return load_raw<kWidth>(x + i * kWidth);
  }
  __device__ __forceinline__ void start(const T* x, int i) const {
    start_copy(shared + i * kWidth, x + i * kWidth);
  }

  // Every row commits kMaxSlices groups, the first of them those of its slices; and pass 1 commits
  // an empty one for each slice that it uses. So kMaxSlices - 1 are always later than the one it
  // needs.
  __device__ __forceinline__ void close_others() const {
    for (int s = slices; s < kMaxSlices; ++s) close_group();
  }
  __device__ __forceinline__ void start_row(const T* x) const {
    for (int s = 0; s < slices; ++s) {
      const int i = vector_of(s);
      if (i < vectors) start(x, i);
      close_group();
    }
    close_others();
  }

  __device__ __forceinline__ void pass_1(const T* x, float& highest, float& sum) {
#pragma unroll
    for (int k = 0; k < kHeld; ++k) {
      const int i = vector_of(slices + k);
      if (i < vectors) held[k] = load(x, i);
    }
    for (int s = 0; s < slices; ++s) {
      wait_for_groups<kMaxSlices - 1>();
      close_group();
      const int i = vector_of(s);
      if (i < vectors) add_vector<T>(load(shared, i), highest, sum);
    }
#pragma unroll
    for (int k = 0; k < kHeld; ++k) {
      if (vector_of(slices + k) < vectors) add_vector<T>(held[k], highest, sum);
    }
    const int step = blockDim.x;
    int i = vector_of(slices + kHeld);
    for (; i + (kAhead - 1) * step < vectors; i += kAhead * step) {
      Vector raw[kAhead];
#pragma unroll
      for (int k = 0; k < kAhead; ++k) raw[k] = load(x, i + k * step);
#pragma unroll
      for (int k = 0; k < kAhead; ++k) add_vector<T>(raw[k], highest, sum);
    }
    for (; i < vectors; i += step) add_vector<T>(load(x, i), highest, sum);
  }

  // x <- exp(x - highest) * scale, and prefetch the next row (null: there is none).
  __device__ __forceinline__ void pass_2(T* x, const T* next, float highest, float scale) const {
    const int step = blockDim.x, first = vector_of(slices + kHeld);
    int i = first + (vectors - 1 - first) / step * step;  // this thread's last
    if (first >= vectors) i = -1;
    for (; i - (kAhead - 1) * step >= first; i -= kAhead * step) {
      Vector raw[kAhead];
#pragma unroll
      for (int k = 0; k < kAhead; ++k) raw[k] = load(x, i - k * step);
#pragma unroll
      for (int k = 0; k < kAhead; ++k) {
        scale_vector(x + (i - k * step) * kWidth, raw[k], highest, scale);
      }
    }
    for (; i >= first; i -= step) scale_vector(x + i * kWidth, load(x, i), highest, scale);
#pragma unroll
    for (int k = 0; k < kHeld; ++k) {
      const int at = vector_of(slices + k);
      if (at < vectors) scale_vector(x + at * kWidth, held[k], highest, scale);
    }
    for (int s = 0; s < slices; ++s) {
      const int at = vector_of(s);
      if (at < vectors) {
        scale_vector(x + at * kWidth, load(shared, at), highest, scale);
        if (next) start(next, at);
      }
      close_group();
    }
    close_others();
  }
};

struct Place {
  int64_t r;
  int target;
};

__device__ __forceinline__ int target_of(const CrossEntropyArgs& args, int64_t r) {
  return r < args.R ? args.targets[r] : -1;
}

template <typename T>
__device__ __forceinline__ T* row_of(const CrossEntropyArgs& args, int64_t r) {
  return static_cast<T*>(args.logits) + r * args.V;
}

// This block's first row with a target from this one on; those before it become zero.
template <typename T>
__device__ __forceinline__ Place find_row(const CrossEntropyArgs& args, Place at) {
  while (at.r < args.R && at.target < 0) {
    if (threadIdx.x == 0) args.losses[at.r] = 0.0f;
    zero_row(row_of<T>(args, at.r), static_cast<int>(args.V));
    at.r += gridDim.x;
    at.target = target_of(args, at.r);
  }
  return at;
}

template <typename T, int kBlocks>
__global__ void __launch_bounds__(kSoftmaxThreads, std::min(kBlocks, kMostBlocks))
    kept_kernel(CrossEntropyArgs args, int slices) {
  WEFT_DYNAMIC_SHARED(T, shared);
  KeptRow<T, kBlocks> row{shared, static_cast<int>(args.V) / kPack<T>, slices, {}};
  const float times = args.factor ? *args.factor : 1.0f;
  Place now = find_row<T>(args, {blockIdx.x, target_of(args, blockIdx.x)});
  if (now.r < args.R) row.start_row(row_of<T>(args, now.r));
  while (now.r < args.R) {
    T* x = row_of<T>(args, now.r);
    const float at_target = load_one(x + now.target);  // before the barriers that end the reading
    Place next = {now.r + gridDim.x, target_of(args, now.r + gridDim.x)};
    float highest = kLowest, sum = 0.0f;
    row.pass_1(x, highest, sum);
    const Softmax softmax = join_threads(highest, sum);
    if (threadIdx.x == 0) {
      args.losses[now.r] = logf(static_cast<float>(softmax.sum)) + (softmax.highest - at_target);
    }
    next = find_row<T>(args, next);
    const float scale = static_cast<float>(1.0 / softmax.sum) * times;
    row.pass_2(x, next.r < args.R ? row_of<T>(args, next.r) : nullptr, softmax.highest, scale);
    if (threadIdx.x == now.target / kPack<T> % blockDim.x) {  // the thread that has just written it
      store_one(x + now.target, expf(at_target - softmax.highest) * scale - times);
    }
    now = next;
  }
}

int attribute_of_device(cudaDeviceAttr attribute) {
  int device = 0, value = 0;
  check(cudaGetDevice(&device), "cudaGetDevice");
  check(cudaDeviceGetAttribute(&value, attribute, device), "cudaDeviceGetAttribute");
  return value;
}

// For each block of an SM: a block may use all of the SM's memory except the driver's share.
int64_t most_shared_bytes(int blocks_per_sm) {
  constexpr int64_t kOfDriver = 1024, kOfJoins = 1024;  // joins use less, as static memory
  const int64_t most = attribute_of_device(cudaDevAttrMaxSharedMemoryPerBlockOptin) + kOfDriver;
  return most / blocks_per_sm - kOfDriver - kOfJoins;
}

template <typename T, int kBlocks>
void launch_kept(const Context& context, const KeptCrossEntropyArgs& kept) {
  const int64_t threads = softmax_threads(kept.args.V), slice_bytes = threads * 16;
  const int64_t bytes = std::min(kept.shared_bytes, most_shared_bytes(kBlocks));
  const int64_t slices = std::min({ceil_div(kept.args.V / kPack<T>, threads),
                                   std::max<int64_t>(bytes, 0) / slice_bytes, int64_t{kMaxSlices}});
  // Blocks of few threads have short rows: equally many of them fit together.
  const int64_t blocks =
      attribute_of_device(cudaDevAttrMultiProcessorCount) * kBlocks * (kSoftmaxThreads / threads);
  launch(context, "cross_entropy", kept_kernel<T, kBlocks>, std::min(blocks, kept.args.R), threads,
         static_cast<size_t>(slices * slice_bytes), kept.args, static_cast<int>(slices));
}

}  // namespace

void keep_rows(const Context& context, const KeptCrossEntropyArgs& kept) {
  with_type(kept.args.dtype, [&](auto value) {
    using T = decltype(value);
    kept.blocks_per_sm == 1 ? launch_kept<T, 1>(context, kept) : launch_kept<T, 2>(context, kept);
  });
}

}  // namespace weft::cuda
