// kernel/cuda/attention_dkv_parts.cu: adds up the parts of dk and dv (attention_dkv_parts.h).
#include "kernel/cuda/attention_dkv_parts.h"
#include "kernel/cuda/attention_tensor.h"

namespace weft::cuda {
namespace {

// dk and dv out of the parts' sums, in their order; kWidth elements of each thread.
constexpr int kSumThreads = 256;
template <int kWidth, typename Value>
__global__ void attention_dkv_parts_kernel(Heads heads, Parts parts,
                                           GradientTensors<Value> tensors) {
  const int width = heads.D / kWidth, of_row = heads.S * heads.G * width;
  const int i = static_cast<int>(blockIdx.x) * kSumThreads + static_cast<int>(threadIdx.x);
  if (i >= of_row) return;
  const int b = static_cast<int>(blockIdx.y), d = i % width * kWidth, g = i / width % heads.G;
  const bool is_dv = blockIdx.z == 1;
  const int64_t rows = int64_t{gridDim.y} * of_row;  // of all parts' elements, over kWidth
  const float* from =
      parts.sums + ((is_dv ? parts.count * rows : 0) + int64_t{b} * of_row + i) * kWidth;
  float sum[kWidth];
  load(from, sum);
  for (int part = 1; part < parts.count; ++part) {
    float next[kWidth];
    load(from + part * rows * kWidth, next);
#pragma unroll
    for (int e = 0; e < kWidth; ++e) sum[e] += next[e];
  }
  Value* to = (is_dv ? tensors.dv : tensors.dk).at(b, i / width / heads.G, g) + d;
#pragma unroll
  for (int e = 0; e < kWidth; ++e) store_one(to + e, sum[e]);
}

}  // namespace

int64_t tensor_attention_dkv_floats(const AttentionBackwardArgs& args) {
  const int64_t parts = num_parts(args);
  if (!uses_tensor_kernels(args) || parts == 1) return 0;
  return 2 * parts * args.B * args.S * args.G * args.D;
}

void add_dkv_parts(const Context& context, const AttentionBackwardArgs& args,
                   const GradientWorkspace& workspace) {
  const Parts parts = parts_of(args, workspace);
  if (parts.count == 1) return;
  with_tensor_shape(args.dtype, args.D, [&](auto value, auto) {
    using Value = decltype(value);
    const auto add = [&](auto width) {
      const dim3 rows(
          static_cast<unsigned>(ceil_div(args.S * args.G * args.D / width, kSumThreads)),
          static_cast<unsigned>(args.B), 2);
      launch(context, "attention: dk, dv of a group", attention_dkv_parts_kernel<width, Value>,
             rows, dim3(kSumThreads), 0, gradient_heads<Value>(args), parts,
             gradient_tensors<Value>(args, workspace.delta));
    };
    if (args.D % 4 == 0) {
      add(std::integral_constant<int, 4>{});
    } else {
      add(std::integral_constant<int, 1>{});
    }
  });
}

}  // namespace weft::cuda
