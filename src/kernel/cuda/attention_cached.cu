// kernel/cuda/attention_cached.cu: attention of new positions over all that a cache holds.
//
// A block of threads handles one query: groups of eight lanes take one key after another, each with
// its own running softmax (attention_builtin.cu explains m and l) over its keys; at the end the
// groups' results are scaled to the overall maximum and added in order of the groups.
#include <cmath>
#include <type_traits>

#include "kernel/attention_bias.h"
#include "kernel/cuda/dispatch.h"
#include "kernel/cuda/launch.h"
#include "kernel/cuda/ops.h"

namespace weft::cuda {
namespace {

constexpr int kThreads = 128;
constexpr int kLanes = 8;                   // of a group
constexpr int kGroups = kThreads / kLanes;  // of a block

// What is added to the scores of one head: the bias of a key by its distance from the query.
template <typename Value>
struct ScoreBiasOf {
  const AttentionBias& bias;
  int64_t H, h;
  double slope;
  __device__ ScoreBiasOf(const AttentionBias& of, int64_t num_heads, int64_t head)
      : bias(of), H(num_heads), h(head), slope(0.0) {
    if (of.kind == AttentionBias::Kind::kAlibi)
      slope = alibi_slope(of.first_head + head, of.num_heads);
  }
  __device__ __forceinline__ float operator()(int64_t distance) const {
    if (bias.kind == AttentionBias::Kind::kAlibi) return alibi_bias(slope, distance);
    const int64_t bucket = relative_bucket(bias.buckets, distance);
    return load_one(static_cast<const Value*>(bias.table) + bucket * H + h);
  }
};

// Lane l of a group has kWidth elements from (i kLanes + l) kWidth on, i = 0, 1 ..., kElements in
// all.
template <int kElements, int kWidth, typename Value>
__device__ __forceinline__ void load_share(const Value* row, int64_t D, float (&to)[kElements]) {
  const int lane = static_cast<int>(threadIdx.x) % kLanes;
#pragma unroll
  for (int i = 0; i < kElements / kWidth; ++i) {
    const int64_t d = (i * kLanes + lane) * kWidth;
    float v[kWidth] = {};
    if (d < D) load(row + d, v);
#pragma unroll
    for (int e = 0; e < kWidth; ++e) to[i * kWidth + e] = v[e];
  }
}

template <typename Value, int kElements, int kWidth>
__global__ void __launch_bounds__(kThreads) cached_attention_kernel(CachedAttentionArgs c) {
  __shared__ float group_m[kGroups], group_l[kGroups];
  WEFT_DYNAMIC_SHARED(float, sums);  // (kGroups, D)
  const int64_t h = blockIdx.x, t = blockIdx.y, b = blockIdx.z, kv = c.G * c.D;
  const auto *k_cache = static_cast<const Value*>(c.k_cache),
             *v_cache = static_cast<const Value*>(c.v_cache);
  Value* to = static_cast<Value*>(c.out) + ((b * c.T + t) * c.H + h) * c.D;
  const SeenKeys seen = c.seen_keys(b, t);
  if (seen.begin == seen.end) {
    for (int64_t d = threadIdx.x; d < c.D; d += kThreads) store_one(to + d, 0.0f);
    return;
  }
  const int group = static_cast<int>(threadIdx.x) / kLanes;
  const int64_t cache = b * c.max_positions * kv + h / (c.H / c.G) * c.D;
  float q[kElements], key[kElements], sum[kElements] = {};
  load_share<kElements, kWidth>(static_cast<const Value*>(c.q.data) + c.q.at(b, t, h), c.D, q);
  const bool has_bias = c.bias.kind != AttentionBias::Kind::kNone;
  const ScoreBiasOf<Value> bias(c.bias, c.H, h);
  float m = -INFINITY, l = 0.0f;
  // All groups iterate equally often: all lanes of a warp take part in the shuffles.
  for (int64_t first = seen.begin; first < seen.end; first += kGroups) {
    const int64_t j = first + group < seen.end ? first + group : seen.end - 1;
    load_share<kElements, kWidth>(k_cache + cache + j * kv, c.D, key);
    float score = 0.0f;
#pragma unroll
    for (int i = 0; i < kElements; ++i) score = fmaf(q[i], key[i], score);
#pragma unroll
    for (int by = kLanes / 2; by > 0; by /= 2) score += __shfl_xor_sync(~0u, score, by);
    if (first + group >= seen.end) continue;
    score = has_bias ? fmaf(score, c.scale, bias(j - seen.origin)) : score * c.scale;
    load_share<kElements, kWidth>(v_cache + cache + j * kv, c.D, key);
    const float highest = fmaxf(m, score);
    const float factor = exp_for(Value{}, m - highest), p = exp_for(Value{}, score - highest);
    m = highest;
    l = fmaf(l, factor, p);
#pragma unroll
    for (int i = 0; i < kElements; ++i) sum[i] = fmaf(p, key[i], sum[i] * factor);
  }
  const int lane = static_cast<int>(threadIdx.x) % kLanes;
  if (lane == 0) {
    group_m[group] = m;
    group_l[group] = l;
  }
#pragma unroll
  for (int i = 0; i < kElements; ++i) {
    const int64_t d = (i / kWidth * kLanes + lane) * kWidth + i % kWidth;
    if (d < c.D) sums[group * c.D + d] = sum[i];
  }
  __syncthreads();
  float highest = -INFINITY, total = 0.0f;
  for (int i = 0; i < kGroups; ++i) highest = fmaxf(highest, group_m[i]);
  for (int i = 0; i < kGroups; ++i) {
    total = fmaf(group_l[i], exp_for(Value{}, group_m[i] - highest), total);
  }
  for (int64_t d = threadIdx.x; d < c.D; d += kThreads) {
    float value = 0.0f;
    for (int i = 0; i < kGroups; ++i) {
      value = fmaf(sums[i * c.D + d], exp_for(Value{}, group_m[i] - highest), value);
    }
    store_one(to + d, value / total);
  }
}

// fn(integral constant): elements of a head that one lane of a group holds.
template <typename Fn>
void with_elements(int64_t D, const Fn& fn) {
  if (D > kMostHeadDim) refuse("attention with too large a head dim");
  if (D <= 64) {
    fn(std::integral_constant<int, 8>{});
  } else if (D <= 128) {
    fn(std::integral_constant<int, 16>{});
  } else {
    fn(std::integral_constant<int, 32>{});
  }
}

}  // namespace

size_t cached_attention_workspace(const CachedAttentionArgs&, int) { return 0; }

void cached_attention(const Context& context, const CachedAttentionArgs& args) {
  const dim3 blocks(static_cast<unsigned>(args.H), static_cast<unsigned>(args.T),
                    static_cast<unsigned>(args.B));
  const size_t shared = static_cast<size_t>(kGroups * args.D) * sizeof(float);
  with_type(args.dtype, [&](auto value) {
    using Value = decltype(value);
    const bool vectored =
        is_vectored<Value>(args.D | strides_of(args.q), {args.q.data, args.k_cache, args.v_cache});
    with_width<Value>(vectored, [&](auto width) {
      with_elements(args.D, [&](auto elements) {
        launch(context, "cached attention", cached_attention_kernel<Value, elements, width>, blocks,
               dim3(kThreads), shared, args);
      });
    });
  });
}

}  // namespace weft::cuda
