// kernel/cuda/attention_cached.cu: attention of new positions over all that a cache holds.
//
// First the new k and v go into the cache. Then a block of threads handles one query: groups of
// eight lanes take one key after another, each with its own running softmax (attention_builtin.cu
// explains m and l) over its keys; at the end the groups' results are scaled to the overall maximum
// and added in order of the groups.
#include <cmath>
#include <type_traits>

#include "kernel/cuda/dispatch.h"
#include "kernel/cuda/launch.h"
#include "kernel/cuda/ops.h"

namespace weft::cuda {
namespace {

constexpr int kThreads = 128;
constexpr int kLanes = 8;                   // of a group
constexpr int kGroups = kThreads / kLanes;  // of a block

struct Cached {
  int64_t T, H, G, D, max_positions;
  float scale;
  const int32_t* starts;
  const int32_t* lengths;
};

template <typename Value, int kWidth>
__global__ void fill_cache_kernel(Cached c, const Value* qkv, Value* k_cache, Value* v_cache) {
  const int64_t b = blockIdx.z, t = blockIdx.y, kv = c.G * c.D;
  const int64_t i = (int64_t{blockIdx.x} * kThreads + threadIdx.x) * kWidth;
  if (t >= c.lengths[b] || i >= kv) return;
  const Value* from = qkv + (b * c.T + t) * (c.H * c.D + 2 * kv) + c.H * c.D + i;
  const int64_t to = (b * c.max_positions + c.starts[b] + t) * kv + i;
  store_raw<kWidth>(k_cache + to, load_raw<kWidth>(from));
  store_raw<kWidth>(v_cache + to, load_raw<kWidth>(from + kv));
}

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
__global__ void __launch_bounds__(kThreads)
    cached_attention_kernel(Cached c, const Value* qkv, const Value* k_cache, const Value* v_cache,
                            Value* out) {
  __shared__ float group_m[kGroups], group_l[kGroups];
  WEFT_DYNAMIC_SHARED(float, sums);  // (kGroups, D)
  const int64_t h = blockIdx.x, t = blockIdx.y, b = blockIdx.z, kv = c.G * c.D;
  Value* to = out + ((b * c.T + t) * c.H + h) * c.D;
  if (t >= c.lengths[b]) {
    for (int64_t d = threadIdx.x; d < c.D; d += kThreads) store_one(to + d, 0.0f);
    return;
  }
  const int group = static_cast<int>(threadIdx.x) / kLanes;
  const int64_t count = c.starts[b] + t + 1;
  const int64_t cache = b * c.max_positions * kv + h / (c.H / c.G) * c.D;
  float q[kElements], key[kElements], sum[kElements] = {};
  load_share<kElements, kWidth>(qkv + (b * c.T + t) * (c.H * c.D + 2 * kv) + h * c.D, c.D, q);
  float m = -INFINITY, l = 0.0f;
  // All groups iterate equally often: all lanes of a warp take part in the shuffles.
  for (int64_t first = 0; first < count; first += kGroups) {
    const int64_t j = first + group < count ? first + group : count - 1;
    load_share<kElements, kWidth>(k_cache + cache + j * kv, c.D, key);
    float score = 0.0f;
#pragma unroll
    for (int i = 0; i < kElements; ++i) score = fmaf(q[i], key[i], score);
#pragma unroll
    for (int by = kLanes / 2; by > 0; by /= 2) score += __shfl_xor_sync(~0u, score, by);
    if (first + group >= count) continue;
    score *= c.scale;
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
  const Cached cached = {.T = args.T,
                         .H = args.H,
                         .G = args.G,
                         .D = args.D,
                         .max_positions = args.max_positions,
                         .scale = args.scale,
                         .starts = args.starts,
                         .lengths = args.lengths};
  const auto T = static_cast<unsigned>(args.T), B = static_cast<unsigned>(args.B);
  with_type(args.dtype, [&](auto value) {
    using Value = decltype(value);
    const auto* qkv = static_cast<const Value*>(args.qkv);
    auto *k = static_cast<Value*>(args.k_cache), *v = static_cast<Value*>(args.v_cache);
    with_width<Value>(is_vectored<Value>(args.D, {qkv, k, v}), [&](auto width) {
      const int64_t blocks = ceil_div(args.G * args.D, kThreads * width);
      launch(context, "cached attention: fill", fill_cache_kernel<Value, width>,
             dim3(static_cast<unsigned>(blocks), T, B), dim3(kThreads), 0, cached, qkv, k, v);
      with_elements(args.D, [&](auto elements) {
        launch(context, "cached attention", cached_attention_kernel<Value, elements, width>,
               dim3(static_cast<unsigned>(args.H), T, B), dim3(kThreads),
               static_cast<size_t>(kGroups * args.D) * sizeof(float), cached, qkv, k, v,
               static_cast<Value*>(args.out));
      });
    });
  });
}

}  // namespace weft::cuda
