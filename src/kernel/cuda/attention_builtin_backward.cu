// kernel/cuda/attention_builtin_backward.cu: gradient of attention for every type, bias, packing.
//
// attention_gradient.h says how; here are delta and the order of the kernels.
#include <algorithm>
#include <type_traits>
#include <utility>

#include "kernel/cpu/workspace.h"
#include "kernel/cuda/attention.h"
#include "kernel/cuda/attention_gradient.h"
#include "kernel/cuda/attention_tensor.h"
#include "kernel/cuda/reduce.h"
#include "kernel/gpu/device_limits.h"

namespace weft::cuda {
namespace {

// delta[b, h, t] = dout · out of kDeltaHeads heads by a warp; 0 where t does not attend. Lane l
// adds up every 32nd product from the l-th on, then lanes are joined.
constexpr int kDeltaThreads = 256, kDeltaHeads = 4;

__device__ inline float row_product(const float* x, const float* y, int D) {
  float sum = 0.0f;
  for (int d = lane_of_warp(); d < D; d += 32) sum = fmaf(x[d], y[d], sum);
  return warp_sum(sum);
}
// In 16 bits a row has half of the warp, whose lane l has the sums of lanes 2 l and 2 l + 1: a
// product is exact in fp32, so the result is the same.
template <typename Value>
__device__ inline float half_row_product(const Value* x, const Value* y, int D, bool paired) {
  float sums[2] = {0.0f, 0.0f};
  for (int d = lane_of_warp() % 16 * 2; d < D; d += 32) {
    float a[2] = {}, b[2] = {};
    if (paired) {
      unpack_two(Value{}, *reinterpret_cast<const uint32_t*>(x + d), a[0], a[1]);
      unpack_two(Value{}, *reinterpret_cast<const uint32_t*>(y + d), b[0], b[1]);
    } else {
      for (int e = 0; e < 2 && d + e < D; ++e) {
        a[e] = load_one(x + d + e);
        b[e] = load_one(y + d + e);
      }
    }
#pragma unroll
    for (int e = 0; e < 2; ++e) sums[e] = fmaf(a[e], b[e], sums[e]);
  }
#pragma unroll
  for (int step = 8; step > 0; step /= 2) {
#pragma unroll
    for (int e = 0; e < 2; ++e) sums[e] += __shfl_xor_sync(~0u, sums[e], step);
  }
  return sums[0] + sums[1];
}

template <typename Value>
__global__ void attention_delta_kernel(Heads heads, bool paired, GradientTensors<Value> tensors) {
  constexpr bool is_float = std::is_same_v<Value, float>;
  const int t =
      static_cast<int>(blockIdx.x) * (kDeltaThreads / 32) + static_cast<int>(threadIdx.x) / 32;
  const int first = static_cast<int>(blockIdx.y) * kDeltaHeads, b = static_cast<int>(blockIdx.z);
  if (t >= heads.T) return;
  const bool attends = t < heads.queries(b).length;
#pragma unroll
  for (int i = 0; i < kDeltaHeads; i += is_float ? 1 : 2) {
    const int wanted = first + i + (is_float ? 0 : lane_of_warp() / 16);
    const int h = min(wanted, heads.H - 1);
    const Value *out = tensors.out.at(b, t, h), *dout = tensors.dout.at(b, t, h);
    float sum;
    if constexpr (is_float) {
      sum = row_product(out, dout, heads.D);
    } else {
      sum = half_row_product(out, dout, heads.D, paired);
    }
    if (lane_of_warp() % (is_float ? 32 : 16) != 0 || wanted >= heads.H) continue;
    tensors.delta[heads.statistic(b, h, t)] = attends ? sum : 0.0f;
  }
}

// Bytes of the workspace, each a whole number of 16.
struct Sizes {
  size_t delta, lines, partials, parts, kept, mask;
  size_t all() const { return delta + lines + partials + parts + kept + mask; }
};
Sizes sizes_of(const AttentionBackwardArgs& args) {
  const auto bytes = [](int64_t floats) { return static_cast<size_t>(ceil_div(floats, 4) * 16); };
  const int64_t sums = args.B * args.H * num_table_parts(args) * args.bias.buckets.count;
  return {bytes(args.B * args.H * args.T),
          (bias_lines_bytes(args) + 15) / 16 * 16,
          args.dtable ? bytes(sums) : 0,
          bytes(tensor_attention_dkv_floats(args)),
          kept_bytes(args),
          uses_tensor_kernels(args) ? drawn_bytes(args) : 0};
}

void make_delta(const Context& context, const AttentionBackwardArgs& args, float* delta) {
  with_type(args.dtype, [&](auto value) {
    using Value = decltype(value);
    launch(
        context, "attention: delta", attention_delta_kernel<Value>,
        dim3(static_cast<unsigned>(ceil_div(args.T * 32, kDeltaThreads)),
             static_cast<unsigned>(ceil_div(args.H, kDeltaHeads)), static_cast<unsigned>(args.B)),
        dim3(kDeltaThreads), 0, gradient_heads<Value>(args),
        args.D % 2 == 0 && begin_at<Value>(2, {args.out, args.dout}),
        gradient_tensors<Value>(args, delta));
  });
}

// Where dS is kept, one piece after another.
void tensor_gradients(const Context& context, const AttentionBackwardArgs& args,
                      const GradientWorkspace& workspace) {
  const bool is_kept = workspace.kept.data != nullptr;
  const int64_t all = args.B * args.G, most = is_kept ? kept_groups(args) : kMostGridRows;
  if (!is_kept) tensor_attention_dq(context, args, workspace);
  for (int64_t first = 0; first < all; first += most) {
    const Groups groups = {static_cast<int>(first), static_cast<int>(std::min(most, all - first))};
    tensor_attention_dkv(context, args, workspace, groups);
    if (is_kept) tensor_attention_kept_dq(context, args, workspace, groups);
  }
  add_dkv_parts(context, args, workspace);
  if (args.dtable) add_bias_partials(context, args, num_table_parts(args), workspace.partials);
}

}  // namespace

size_t builtin_attention_backward_workspace(const AttentionBackwardArgs& args) {
  return sizes_of(args).all();
}

void builtin_attention_backward(const Context& context, const AttentionBackwardArgs& args) {
  const Sizes sizes = sizes_of(args);
  check_workspace("attention_backward", sizes.all(), context.workspace_bytes);
  std::byte* at = context.workspace;
  const auto take = [&](size_t bytes) {
    return reinterpret_cast<float*>(std::exchange(at, at + bytes));
  };
  GradientWorkspace workspace = {.delta = take(sizes.delta),
                                 .lines = take(sizes.lines),
                                 .partials = take(sizes.partials),
                                 .parts = take(sizes.parts),
                                 .drawn = {},
                                 .kept = {}};
  std::byte* kept = std::exchange(at, at + sizes.kept);
  make_bias_lines(context, args, workspace.lines);
  make_delta(context, args, workspace.delta);
  if (uses_tensor_kernels(args)) {
    workspace.drawn = draw_mask(context, args, at);
    if (kept_groups(args) > 0) workspace.kept = kept_at(args, kept);
    return tensor_gradients(context, args, workspace);
  }
  builtin_attention_dq(context, args, workspace);
  builtin_attention_dkv(context, args, workspace);
}

}  // namespace weft::cuda
