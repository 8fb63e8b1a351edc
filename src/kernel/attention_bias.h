// kernel/attention_bias.h: biases of attention's scores by distance: one rule for all backends.
//
// Distances are position of the key less position of the query, both counted in their segments.
// ALiBi: -slope |distance|; the slopes are those of the paper, and for a number of heads that is
// not a power of two those of the next lower power, then every other one of the next higher power.
// T5: the table's row is the distance's bucket. Kernels compute no logarithm or power: backends
// would round it differently.
#pragma once

#include <cstdint>

#include "kernel/kernels.h"

namespace weft {

// Of head `head` of the model's num_heads: 2^(-8 (head + 1) / n) for n a power of two. The power is
// the product of 2^(-1/2), 2^(-1/4), ... by the bits of the exponent.
constexpr double alibi_slope(int64_t head, int64_t num_heads) {
  constexpr double kRoots[] = {0x1.6a09e667f3bcdp-1, 0x1.ae89f995ad3adp-1, 0x1.d5818dcfba487p-1,
                               0x1.ea4afa2a490dap-1, 0x1.f50765b6e4540p-1, 0x1.fa7c1819e90d8p-1,
                               0x1.fd3c22b8f71f1p-1, 0x1.fe9d96b2a23d9p-1, 0x1.ff4eaca4391b6p-1,
                               0x1.ffa74ea381efcp-1, 0x1.ffd3a565efb65p-1, 0x1.ffe9d237fe372p-1};
  int bits = 0;
  while (int64_t{2} << bits <= num_heads) ++bits;
  const int64_t n = int64_t{1} << bits;
  const int64_t exponent = head < n ? 8 * (head + 1) : 4 * (2 * (head - n) + 1);  // over n
  double slope = 1.0;
  for (int64_t i = 0; i < exponent >> bits; ++i) slope *= 0.5;
  for (int i = 0; i < bits; ++i) {
    if ((exponent >> (bits - 1 - i) & 1) != 0) slope *= kRoots[i];
  }
  return slope;
}
inline constexpr int64_t kMostAlibiHeads = 8191;

constexpr float alibi_bias(double slope, int64_t distance) {
  return static_cast<float>(-slope * static_cast<double>(distance < 0 ? -distance : distance));
}

// As transformers' T5: half of each side's buckets hold one distance each, the others grow by equal
// factors up to max_distance; everything farther is in the last. A key later than its query
// has distance 0 where only one side counts.
RelativeBuckets relative_buckets(int count, int64_t max_distance, bool bidirectional);

constexpr int relative_bucket(const RelativeBuckets& buckets, int64_t distance) {
  const bool is_later = distance > 0;
  const int64_t far = is_later ? (buckets.bidirectional ? distance : 0) : -distance;
  int low = 0, high = buckets.side;  // begins[low] <= far < begins[high]
  while (high - low > 1) {
    const int middle = (low + high) / 2;
    if (buckets.begins[middle] <= far) {
      low = middle;
    } else {
      high = middle;
    }
  }
  return low + (is_later && buckets.bidirectional ? buckets.side : 0);
}

// For head h of a call of H heads, on the CPU: at one distance, and to[i] at distance + i step.
struct HeadBias {
  const AttentionBias& bias;
  Dtype dtype;  // of the table
  int64_t H, h;
};
inline HeadBias head_bias(const AttentionOperands& args, int64_t h) {
  return {args.bias, args.dtype, args.H, h};
}
float attention_bias(const HeadBias& head, int64_t distance);
void fill_bias_line(const HeadBias& head, int64_t distance, int64_t step, int64_t count, float* to);
// sums[bucket * stride] += factor line[i], of the bucket of distance + i, in the order of i.
void add_to_buckets(const RelativeBuckets& buckets, const float* line, int64_t distance,
                    int64_t count, float factor, float* sums, int64_t stride);

}  // namespace weft
