// kernel/cuda/embedding_backward.cu: the gradient of a table: rows of one id added in order.
//
// First tokens are gathered by id, with counters: `count` tokens have an id; each gets a `slot`
// among them, first come first served; the one with slot 0 reserves space for all of them in `list`
// (from `offset` on), and each writes its index there. Then one block per token with slot 0 sorts
// the list and adds the rows of dout. The slots may differ from run to run; the sorted list, and so
// the sum, does not.
//
// Sorting uses one bit per token in shared memory: a list is as long as the number of set bits, and
// a token's place in it is the number of bits below its own.
#include <algorithm>

#include "kernel/cpu/workspace.h"
#include "kernel/cuda/dispatch.h"
#include "kernel/cuda/launch.h"
#include "kernel/cuda/ops.h"

namespace weft::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kBits = 32;

struct Gathered {
  int* next;    // (1) the first free place of list
  int* count;   // (V)
  int* offset;  // (V)
  int* slot;    // (R); -1: contributes nothing
  int* list;    // (R)
};

Gathered lay_out(const EmbeddingBackwardArgs& args, std::byte* workspace) {
  int* at = reinterpret_cast<int*>(workspace);
  return {at, at + 1, at + 1 + args.V, at + 1 + 2 * args.V, at + 1 + 2 * args.V + args.R};
}

__device__ __forceinline__ int64_t row_of_table(const EmbeddingBackwardArgs& args, int64_t r) {
  return args.ids[r] - args.first_id;
}

__global__ void count_kernel(EmbeddingBackwardArgs args, Gathered to) {
  const int64_t r = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (r >= args.R) return;
  const int64_t id = row_of_table(args, r);
  const bool gives = args.ids[r] != args.padding_id && id >= 0 && id < args.V;
  to.slot[r] = gives ? atomicAdd(to.count + id, 1) : -1;
}

__global__ void offset_kernel(EmbeddingBackwardArgs args, Gathered to) {
  const int64_t r = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (r >= args.R || to.slot[r] != 0) return;
  const int64_t id = row_of_table(args, r);
  to.offset[id] = atomicAdd(to.next, to.count[id]);
}

__global__ void list_kernel(EmbeddingBackwardArgs args, Gathered to) {
  const int64_t r = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (r >= args.R || to.slot[r] < 0) return;
  to.list[to.offset[row_of_table(args, r)] + to.slot[r]] = static_cast<int>(r);
}

// The indices in the list, ascending. A thread takes a stretch of words of bits.
__device__ void sort_list(int* list, int count, int64_t R) {
  WEFT_DYNAMIC_SHARED(unsigned, bits);
  __shared__ int below[kThreads];
  static_assert(kMostPassTokens / 8 + sizeof below <= 64 << 10);
  const int words = static_cast<int>((R + kBits - 1) / kBits), threads = blockDim.x;
  for (int w = threadIdx.x; w < words; w += threads) bits[w] = 0;
  __syncthreads();
  for (int k = threadIdx.x; k < count; k += threads) {
    atomicOr(bits + list[k] / kBits, 1u << (list[k] % kBits));
  }
  __syncthreads();
  const int stretch = (words + threads - 1) / threads;
  const int begin = min(words, static_cast<int>(threadIdx.x) * stretch);
  const int end = min(words, begin + stretch);
  int own = 0;
  for (int w = begin; w < end; ++w) own += __popc(bits[w]);
  below[threadIdx.x] = own;
  __syncthreads();
  int at = 0;
  for (unsigned t = 0; t < threadIdx.x; ++t) at += below[t];
  for (int w = begin; w < end; ++w) {
    for (unsigned left = bits[w]; left != 0; left &= left - 1) {
      list[at++] = w * kBits + __ffs(left) - 1;
    }
  }
  __syncthreads();
}

template <typename T, typename Grad, int kWidth>
__global__ void __launch_bounds__(kThreads)
    add_rows_kernel(EmbeddingBackwardArgs args, Gathered from) {
  const int64_t r = blockIdx.x;
  if (from.slot[r] != 0) return;
  const int64_t id = row_of_table(args, r);
  const int count = from.count[id];
  int* list = from.list + from.offset[id];
  if (count > 1) sort_list(list, count, args.R);
  const T* dout = static_cast<const T*>(args.dout);
  Grad* to = static_cast<Grad*>(args.dtable) + id * args.C;
  for (int64_t c = threadIdx.x * kWidth; c < args.C; c += blockDim.x * kWidth) {
    float sum[kWidth] = {};
    int k = 0;
    constexpr int kAhead = 8;
    for (; k + kAhead <= count; k += kAhead) {
      Raw<T, kWidth> raw[kAhead];
#pragma unroll
      for (int j = 0; j < kAhead; ++j) raw[j] = load_raw<kWidth>(dout + list[k + j] * args.C + c);
#pragma unroll
      for (int j = 0; j < kAhead; ++j) {
        float v[kWidth];
        unpack(raw[j], v);
#pragma unroll
        for (int i = 0; i < kWidth; ++i) sum[i] += v[i];
      }
    }
    for (; k < count; ++k) {
      float v[kWidth];
      load(dout + list[k] * args.C + c, v);
#pragma unroll
      for (int i = 0; i < kWidth; ++i) sum[i] += v[i];
    }
    float old[kWidth];  // zeros where not accumulate
    load(to + c, old);
#pragma unroll
    for (int i = 0; i < kWidth; ++i) sum[i] += old[i];
    store(to + c, sum);
  }
}

}  // namespace

size_t embedding_backward_workspace(const EmbeddingBackwardArgs& args, int) {
  return static_cast<size_t>(1 + 2 * args.V + 2 * args.R) * sizeof(int);
}

void embedding_backward(const Context& context, const EmbeddingBackwardArgs& args) {
  check_workspace("embedding_backward", embedding_backward_workspace(args, 1),
                  context.workspace_bytes);
  if (args.R > kMostPassTokens) refuse("the gradient of an embedding of too many tokens");
  const cudaStream_t stream = stream_of(context);
  if (!args.accumulate) {
    const int64_t bytes = args.V * args.C * dtype_bytes(args.grad_dtype);
    check(cudaMemsetAsync(args.dtable, 0, bytes, stream), "memset of an embedding's gradient");
  }
  const Gathered gathered = lay_out(args, context.workspace);
  check(cudaMemsetAsync(gathered.next, 0, (1 + args.V) * sizeof(int), stream),
        "memset of counters");
  const int64_t blocks = ceil_div(args.R, kThreads);
  launch(context, "embedding's count", count_kernel, blocks, kThreads, 0, args, gathered);
  launch(context, "embedding's offset", offset_kernel, blocks, kThreads, 0, args, gathered);
  launch(context, "embedding's list", list_kernel, blocks, kThreads, 0, args, gathered);
  const size_t shared = static_cast<size_t>(ceil_div(args.R, kBits)) * sizeof(unsigned);
  with_type(args.dtype, [&](auto value) {
    using T = decltype(value);
    with_gradient_type<T>(args.grad_dtype, [&](auto gradient) {
      with_width<T>(is_vectored<T>(args.C, {args.dout, args.dtable}), [&](auto width) {
        const int64_t threads =
            std::min<int64_t>(kThreads, ceil_div(args.C, width * kWarp) * kWarp);
        launch(context, "embedding_backward", add_rows_kernel<T, decltype(gradient), width>, args.R,
               threads, shared, args, gathered);
      });
    });
  });
}

}  // namespace weft::cuda
