// kernel/cuda/qk_norm.cu: root-mean-square norm of every head of q and of k, and its gradient.
//
// A warp has a head. Forward: heads of all tokens in order, those of v are copied. Backward: a
// block has heads of one leaf and of one kind (q, k or v), so that a thread can keep the gradient
// of its channels of the weight in registers, as in rmsnorm_backward.cu.
#include <algorithm>

#include "kernel/cpu/workspace.h"
#include "kernel/cuda/columns.h"
#include "kernel/cuda/dispatch.h"
#include "kernel/cuda/launch.h"
#include "kernel/cuda/norm_rows.h"
#include "kernel/cuda/ops.h"
#include "kernel/cuda/rms_weight.h"

namespace weft::cuda {
namespace {

constexpr int kHeadValues = kMostHeadDim / kWarp;  // of a thread
constexpr int kWarps = 8;                          // of a block
constexpr int kThreads = kWarps * kWarp;
constexpr int64_t kMostChunks = 132;  // blocks of one leaf and kind
constexpr int kV = 2;                 // kinds: q, k, v

void check_head(int64_t D) {
  if (D > kMostHeadDim) refuse("qk_norm of too large heads");
}

template <typename T, int kWidth>
__device__ __forceinline__ void copy_head(const T* from, T* to, int vectors) {
  for (int i = threadIdx.x; i < vectors; i += kWarp)
    store_raw(to + i * kWidth, load_raw<kWidth>(from + i * kWidth));
}

template <typename T, int kWidth, bool kOffset>
__global__ void __launch_bounds__(kThreads) qk_norm_kernel(QkNormArgs args) {
  using Share = RowShare<T, kWidth, kHeadValues>;
  const int64_t heads = args.H + 2 * args.G, normed = args.H + args.G;
  const int64_t row = int64_t{blockIdx.x} * kWarps + threadIdx.y;
  if (row >= args.R * heads) return;
  const int64_t r = row / heads, head = row - r * heads;
  const int vectors = static_cast<int>(args.D / kWidth);
  const T* x = static_cast<const T*>(args.x) + row * args.D;
  T* y = static_cast<T*>(args.y) + row * args.D;
  if (head >= normed) {
    if (x != y) copy_head<T, kWidth>(x, y, vectors);
    return;
  }
  const T* weight = static_cast<const T*>(head < args.H ? args.q_weight : args.k_weight);
  Share s;
  s.read(x, vectors);
  float squares = 0.0f;
#pragma unroll
  for (int k = 0; k < Share::kCount; ++k) {
    if (static_cast<int>(threadIdx.x) + k * kWarp >= vectors) break;
    float v[kWidth];
    unpack(s.raw[k], v);
#pragma unroll
    for (int j = 0; j < kWidth; ++j) squares = fmaf(v[j], v[j], squares);
  }
  const float rstd = 1.0f / sqrtf(warp_sum(squares) / static_cast<float>(args.D) + args.eps);
  if (threadIdx.x == 0) args.rstd[r * normed + head] = rstd;
#pragma unroll
  for (int k = 0; k < Share::kCount; ++k) {
    const int i = threadIdx.x + k * kWarp;
    if (i >= vectors) break;
    float v[kWidth], w[kWidth];
    unpack(s.raw[k], v);
    load(weight + i * kWidth, w);
#pragma unroll
    for (int j = 0; j < kWidth; ++j) {
      v[j] = weighted_part<T, kOffset>(v[j] * rstd) * offset_weight<kOffset>(w[j]);
    }
    store(y + i * kWidth, v);
  }
}

// One head; adds to the gradient of its weight.
template <typename T, int kWidth, bool kOffset>
__device__ __forceinline__ void head_backward(const T* dy, const T* x, const T* weight, float rstd,
                                              int64_t D, T* dx, float (&dweight)[kHeadValues]) {
  using Share = RowShare<T, kWidth, kHeadValues>;
  const int vectors = static_cast<int>(D / kWidth);
  Share d_share, s;
  d_share.read(dy, vectors);
  s.read(x, vectors);
  float sum = 0.0f;
#pragma unroll
  for (int k = 0; k < Share::kCount; ++k) {
    const int i = threadIdx.x + k * kWarp;
    if (i >= vectors) break;
    float d[kWidth], v[kWidth], w[kWidth];
    unpack(d_share.raw[k], d);
    unpack(s.raw[k], v);
    load(weight + i * kWidth, w);
#pragma unroll
    for (int j = 0; j < kWidth; ++j) {
      const float normed = v[j] * rstd;
      sum = fmaf(d[j] * offset_weight<kOffset>(w[j]), normed, sum);
      float& to = dweight[k * kWidth + j];
      to = fmaf(d[j], weighted_part<T, kOffset>(normed), to);
    }
  }
  const float mean = warp_sum(sum) * (1.0f / static_cast<float>(D));
#pragma unroll
  for (int k = 0; k < Share::kCount; ++k) {
    const int i = threadIdx.x + k * kWarp;
    if (i >= vectors) break;
    float d[kWidth], v[kWidth], w[kWidth];
    unpack(d_share.raw[k], d);
    unpack(s.raw[k], v);
    load(weight + i * kWidth, w);
#pragma unroll
    for (int j = 0; j < kWidth; ++j) {
      const float g = d[j] * offset_weight<kOffset>(w[j]);
      d[j] = fmaf(-(v[j] * rstd), mean, g) * rstd;
    }
    store(dx + i * kWidth, d);
  }
}

// Block (chunk, leaf, kind). Partial sums: (chunk, slot, D); q's leaves are the first slots.
template <typename T, int kWidth, bool kOffset>
__global__ void __launch_bounds__(kThreads)
    qk_norm_backward_kernel(QkNormBackwardArgs args, float* partials, int slots) {
  const int leaf = blockIdx.y, kind = blockIdx.z;
  const int64_t all = args.H + 2 * args.G;
  const int64_t heads = (kind == 0 ? args.H : args.G) / args.leaves;  // of this leaf
  const int64_t first = (kind == 0 ? 0 : args.H + (kind == kV ? args.G : 0)) + leaf * heads;
  const T* weight = static_cast<const T*>(kind == 0 ? args.q_weight : args.k_weight);
  float dweight[kHeadValues] = {};
  for (int64_t n = int64_t{blockIdx.x} * kWarps + threadIdx.y; n < args.R * heads;
       n += int64_t{gridDim.x} * kWarps) {
    const int64_t r = n / heads, head = first + n - r * heads;
    const int64_t base = (r * all + head) * args.D;
    const T* dy = static_cast<const T*>(args.dy) + base;
    T* dx = static_cast<T*>(args.dx) + base;
    if (kind == kV) {
      if (dx != dy) copy_head<T, kWidth>(dy, dx, static_cast<int>(args.D / kWidth));
    } else {
      head_backward<T, kWidth, kOffset>(dy, static_cast<const T*>(args.x) + base, weight,
                                        args.rstd[r * (args.H + args.G) + head], args.D, dx,
                                        dweight);
    }
  }
  const bool has_dq = args.dq_weight[0] != nullptr;
  if (kind == kV || (kind == 0 ? !has_dq : args.dk_weight[0] == nullptr)) return;
  const int slot = kind == 0 || !has_dq ? leaf : args.leaves + leaf;
  write_partial<kWidth>(dweight, args.D, partials + (int64_t{blockIdx.x} * slots + slot) * args.D);
}

int num_slots(const QkNormBackwardArgs& args) {
  return (args.dq_weight[0] ? args.leaves : 0) + (args.dk_weight[0] ? args.leaves : 0);
}

// Of one leaf alone: a leaf's bits do not depend on how many others this rank has.
int64_t num_chunks(const QkNormBackwardArgs& args) {
  return std::min(kMostChunks, ceil_div(args.R * (std::max(args.H, args.G) / args.leaves), kWarps));
}

// The second stage: rows of partial sums to where their columns belong.
void finish(const Context& context, const QkNormBackwardArgs& args, const float* partials) {
  if (num_slots(args) == 0) return;
  ColumnParts to{};
  for (void* const* gradients : {args.dq_weight, args.dk_weight}) {
    for (int leaf = 0; gradients[0] && leaf < args.leaves; ++leaf) {
      to.parts[to.count] = gradients[leaf];
      to.ends[to.count] = (to.count + 1) * args.D;
      ++to.count;
    }
  }
  add_partials(context, partials, num_chunks(args), to.count * args.D, to, args.grad_dtype,
               args.accumulate);
}

}  // namespace

void qk_norm(const Context& context, const QkNormArgs& args) {
  check_head(args.D);
  with_type(args.dtype, [&](auto value) {
    using T = decltype(value);
    const bool vectored = is_vectored<T>(args.D, {args.x, args.q_weight, args.k_weight, args.y});
    with_width<T>(vectored, [&](auto width) {
      with_offset(args.weight_offset, [&](auto offset) {
        launch(context, "qk_norm",
               qk_norm_kernel<T, decltype(width)::value, decltype(offset)::value>,
               ceil_div(args.R * (args.H + 2 * args.G), kWarps), dim3(kWarp, kWarps), 0, args);
      });
    });
  });
}

size_t qk_norm_backward_workspace(const QkNormBackwardArgs& args, int) {
  return static_cast<size_t>(num_chunks(args) * num_slots(args) * args.D) * sizeof(float);
}

void qk_norm_backward(const Context& context, const QkNormBackwardArgs& args) {
  check_head(args.D);
  check_workspace("qk_norm_backward", qk_norm_backward_workspace(args, 1), context.workspace_bytes);
  float* partials = reinterpret_cast<float*>(context.workspace);
  const dim3 blocks(static_cast<unsigned>(num_chunks(args)), static_cast<unsigned>(args.leaves), 3);
  const size_t shared = static_cast<size_t>(kWarps * args.D) * sizeof(float);
  with_type(args.dtype, [&](auto value) {
    using T = decltype(value);
    const bool vectored =
        is_vectored<T>(args.D, {args.dy, args.x, args.q_weight, args.k_weight, args.dx});
    with_width<T>(vectored, [&](auto width) {
      with_offset(args.weight_offset, [&](auto offset) {
        launch(context, "qk_norm_backward",
               qk_norm_backward_kernel<T, decltype(width)::value, decltype(offset)::value>, blocks,
               dim3(kWarp, kWarps), shared, args, partials, num_slots(args));
      });
    });
  });
  finish(context, args, partials);
}

}  // namespace weft::cuda
