// kernel/cuda/attention_builtin_backward.cu: gradient of attention for every type, bias, packing.
//
// attention_gradient.h says how; here are delta and the order of the kernels.
#include "kernel/cpu/workspace.h"
#include "kernel/cuda/attention.h"
#include "kernel/cuda/attention_gradient.h"
#include "kernel/cuda/reduce.h"

namespace weft::cuda {
namespace {

// delta[b, h, t] = dout · out, one warp each; 0 where t does not attend.
constexpr int kDeltaThreads = 256;
template <typename Value>
__global__ void attention_delta_kernel(Heads heads, int64_t count, GradientTensors<Value> tensors) {
  const int64_t i = (int64_t{blockIdx.x} * kDeltaThreads + threadIdx.x) / 32;  // of (B, T, H)
  if (i >= count) return;
  const int h = static_cast<int>(i % heads.H), t = static_cast<int>(i / heads.H % heads.T);
  const int b = static_cast<int>(i / heads.H / heads.T);
  const Value* out = tensors.out.at(b, t, h);
  const Value* dout = tensors.dout.at(b, t, h);
  float sum = 0.0f;
  for (int d = lane_of_warp(); d < heads.D; d += 32) {
    sum = fmaf(load_one(out + d), load_one(dout + d), sum);
  }
  sum = warp_sum(sum);
  if (lane_of_warp() == 0) {
    tensors.delta[heads.statistic(b, h, t)] = t < heads.queries(b).length ? sum : 0.0f;
  }
}

// Bytes of the workspace, each a whole number of 16.
struct Sizes {
  size_t delta, lines, partials;
  size_t all() const { return delta + lines + partials; }
};
Sizes sizes_of(const AttentionBackwardArgs& args) {
  const auto bytes = [](int64_t floats) { return static_cast<size_t>(ceil_div(floats, 4) * 16); };
  const int64_t parts = ceil_div(args.T, 64) * 4;  // of a row and head: one per warp, at most
  const int64_t sums = args.B * args.H * parts * args.bias.buckets.count;
  return {bytes(args.B * args.H * args.T), (bias_lines_bytes(args) + 15) / 16 * 16,
          args.dtable ? bytes(sums) : 0};
}

void make_delta(const Context& context, const AttentionBackwardArgs& args, float* delta) {
  const int64_t count = args.B * args.T * args.H;
  with_type(args.dtype, [&](auto value) {
    using Value = decltype(value);
    launch(context, "attention: delta", attention_delta_kernel<Value>,
           dim3(static_cast<unsigned>(ceil_div(count * 32, kDeltaThreads))), dim3(kDeltaThreads), 0,
           gradient_heads<Value>(args), count, gradient_tensors<Value>(args, delta));
  });
}

}  // namespace

size_t builtin_attention_backward_workspace(const AttentionBackwardArgs& args) {
  return sizes_of(args).all();
}

void builtin_attention_backward(const Context& context, const AttentionBackwardArgs& args) {
  const Sizes sizes = sizes_of(args);
  check_workspace("attention_backward", sizes.all(), context.workspace_bytes);
  std::byte* at = context.workspace;
  const GradientWorkspace workspace = {reinterpret_cast<float*>(at),
                                       reinterpret_cast<float*>(at + sizes.delta),
                                       reinterpret_cast<float*>(at + sizes.delta + sizes.lines)};
  make_bias_lines(context, args, workspace.lines);
  make_delta(context, args, workspace.delta);
  builtin_attention_dq(context, args, workspace);
  builtin_attention_dkv(context, args, workspace);
}

}  // namespace weft::cuda
