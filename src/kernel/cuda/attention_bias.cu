// kernel/cuda/attention_bias.cu: biases of attention's scores by distance, and their table's
// gradient.
//
// The attention kernels read a line per head instead of computing a slope's product or a bucket for
// every score; T x S is never stored.
#include "kernel/attention_bias.h"
#include "kernel/cuda/attention.h"
#include "kernel/cuda/dispatch.h"
#include "kernel/cuda/launch.h"
#include "kernel/cuda/mma.h"
#include "kernel/cuda/reduce.h"

namespace weft::cuda {
namespace {

constexpr int kThreads = 256;

template <typename Value>
__global__ void bias_lines_kernel(AttentionBias bias, int H, int64_t first_distance, int64_t count,
                                  float* lines, uint8_t* buckets) {
  const int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  const int h = static_cast<int>(blockIdx.y);
  if (i >= count) return;
  const int64_t distance = first_distance + i;
  float* to = lines + h * count + i;
  if (bias.kind == AttentionBias::Kind::kAlibi) {
    *to = alibi_bias(alibi_slope(bias.first_head + h, bias.num_heads), distance);
  } else {
    const int bucket = relative_bucket(bias.buckets, distance);
    if (h == 0) buckets[i] = static_cast<uint8_t>(bucket);
    *to = load_one(static_cast<const Value*>(bias.table) + int64_t{bucket} * H + h);
  }
}

// A warp per element of the table, head by head. A lane adds up every 32nd part of a row, lanes are
// joined in a fixed order, rows are added one after the other.
template <typename Grad>
__global__ void bias_partials_kernel(int64_t B, int64_t H, int64_t parts, int64_t buckets,
                                     float factor, const float* partials, Grad* dtable,
                                     bool accumulate) {
  const int64_t i = (int64_t{blockIdx.x} * kThreads + threadIdx.x) / kWarp;
  if (i >= buckets * H) return;
  const int64_t h = i / buckets, bucket = i % buckets;
  float total = 0.0f;
  for (int64_t b = 0; b < B; ++b) {
    const float* part = partials + (b * H + h) * parts * buckets + bucket;
    float sum = 0.0f;
    for (int64_t p = lane_of_warp(); p < parts; p += kWarp) sum += part[p * buckets];
    total += warp_sum(sum) * factor;
  }
  if (lane_of_warp() != 0) return;
  Grad* to = dtable + bucket * H + h;
  store_one(to, accumulate ? load_one(to) + total : total);
}

bool has_bias(const AttentionOperands& args) {
  return args.bias.kind != AttentionBias::Kind::kNone;
}

}  // namespace

int64_t bias_line_floats(const AttentionOperands& args) {
  return args.T + args.S - 1 + 2 * kBiasReach;
}

const uint8_t* bucket_line(const AttentionOperands& args, const float* lines) {
  return reinterpret_cast<const uint8_t*>(lines + args.H * bias_line_floats(args));
}

size_t bias_lines_bytes(const AttentionOperands& args) {
  const auto count = static_cast<size_t>(bias_line_floats(args));
  return has_bias(args) ? static_cast<size_t>(args.H) * count * sizeof(float) + count : 0;
}

void make_bias_lines(const Context& context, const AttentionOperands& args, float* lines) {
  if (!has_bias(args)) return;
  const int64_t count = bias_line_floats(args);
  const dim3 blocks(static_cast<unsigned>(ceil_div(count, kThreads)),
                    static_cast<unsigned>(args.H));
  with_type(args.dtype, [&](auto value) {
    launch(context, "attention: bias by distance", bias_lines_kernel<decltype(value)>, blocks,
           dim3(kThreads), 0, args.bias, static_cast<int>(args.H), 1 - args.T - kBiasReach, count,
           lines, const_cast<uint8_t*>(bucket_line(args, lines)));
  });
}

void add_bias_partials(const Context& context, const AttentionBackwardArgs& args, int64_t parts,
                       const float* partials) {
  const int64_t buckets = args.bias.buckets.count;
  const dim3 blocks(static_cast<unsigned>(ceil_div(buckets * args.H * kWarp, kThreads)));
  const auto add = [&](auto value) {
    using Grad = decltype(value);
    launch(context, "attention: gradient of the bias table", bias_partials_kernel<Grad>, blocks,
           dim3(kThreads), 0, args.B, args.H, parts, buckets, 1.0f / args.scale, partials,
           static_cast<Grad*>(args.dtable), args.accumulate);
  };
  with_type(args.dtype,
            [&](auto value) { with_gradient_type<decltype(value)>(args.grad_dtype, add); });
}

}  // namespace weft::cuda
