// kernel/attention_bias.cpp: the bucket boundaries, computed once per plan; out of line, so that
// levels do not each compile it.
#include "kernel/attention_bias.h"

#include <cmath>

#include "base/error.h"

namespace weft {

// Bucket e + i of a side with n buckets, e = n / 2, begins at the smallest x with
// (x / e)^(n - e) >= (max_distance / e)^i. The two may be equal (powers of two); their logarithms
// in float64 then differ by 1e-13 at most, which counts as equal.
RelativeBuckets relative_buckets(int count, int64_t max_distance, bool bidirectional) {
  const int side = bidirectional ? count / 2 : count;
  const int exact = side / 2;
  ensure(exact >= 1 && side <= kMostBuckets && max_distance > exact && max_distance < INT32_MAX / 2,
         fmt::format("no rule for {} relative buckets up to distance {}", count, max_distance));
  RelativeBuckets buckets = {.count = count, .side = side, .bidirectional = bidirectional};
  int32_t x = 0;
  for (int i = 0; i < side; ++i) {
    const double wanted = (i - exact) * std::log(static_cast<double>(max_distance) / exact) - 1e-11;
    const auto power = [&] { return (side - exact) * std::log(static_cast<double>(x) / exact); };
    while (i > exact && power() < wanted) ++x;
    buckets.begins[i] = i <= exact ? i : x;
    x = buckets.begins[i];
  }
  return buckets;
}

float attention_bias(const HeadBias& head, int64_t distance) {
  float bias = 0.0f;
  fill_bias_line(head, distance, 1, 1, &bias);
  return bias;
}

void fill_bias_line(const HeadBias& head, int64_t distance, int64_t step, int64_t count,
                    float* to) {
  const AttentionBias& bias = head.bias;
  const bool is_alibi = bias.kind == AttentionBias::Kind::kAlibi;
  const double slope = is_alibi ? alibi_slope(bias.first_head + head.h, bias.num_heads) : 0.0;
  for (int64_t i = 0; i < count; ++i, distance += step) {
    if (bias.kind == AttentionBias::Kind::kRelative) {
      const int64_t bucket = relative_bucket(bias.buckets, distance);
      to[i] = load_element(bias.table, head.dtype, bucket * head.H + head.h);
    } else {
      to[i] = is_alibi ? alibi_bias(slope, distance) : 0.0f;
    }
  }
}

void add_to_buckets(const RelativeBuckets& buckets, const float* line, int64_t distance,
                    int64_t count, float factor, float* sums, int64_t stride) {
  for (int64_t i = 0; i < count; ++i) {
    sums[relative_bucket(buckets, distance + i) * stride] += factor * line[i];
  }
}

}  // namespace weft
