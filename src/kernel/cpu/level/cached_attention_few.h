// kernel/cpu/level/cached_attention_few.h: attention of single new positions to the cache.
//
// Heads that share keys are processed together, 64 keys at a time: for each head the scores, then
// the weighted values, with the running maximum of attention by blocks. The time is that of reading
// the cache: meanwhile the next 64 keys are prefetched, also those of the next heads.
#pragma once

#include "kernel/cpu/level/attention_block.h"
#include "kernel/cpu/level/simd.h"
#include "kernel/kernels.h"

namespace weft::WEFT_LEVEL {
namespace {

// Chains of multiply-adds that advance together: one alone waits for its own last result.
constexpr int64_t kKeysTogether = 4;
constexpr int64_t kVectorsTogether = 64 / kLanes;

template <typename T>
WEFT_INLINE void load_two(const T* p, Vec* first, Vec* second) {
  *first = load(p);
  *second = load(p + kLanes);
}
#if defined(__aarch64__)
WEFT_INLINE void load_two(const Bf16* p, Vec* first, Vec* second) {
  const uint16x8_t both = vld1q_u16(&p->bits);
  *first = vreinterpretq_f32_u32(vshll_n_u16(vget_low_u16(both), 16));
  *second = vreinterpretq_f32_u32(vshll_high_n_u16(both, 16));
}
#endif

template <int kKeys, typename T>
WEFT_INLINE void score(const float* q, const T* k, int64_t step, int64_t D, float scale, float* s) {
  Vec sums[kKeys];
#pragma GCC unroll 4
  for (int j = 0; j < kKeys; ++j) sums[j] = zero();
  int64_t first = 0;
  for (; first + 2 * kLanes <= D; first += 2 * kLanes) {
    const Vec q0 = load(q + first), q1 = load(q + first + kLanes);
#pragma GCC unroll 4
    for (int j = 0; j < kKeys; ++j) {
      Vec k0, k1;
      load_two(k + j * step + first, &k0, &k1);
      sums[j] = fma(q1, k1, fma(q0, k0, sums[j]));
    }
  }
  each_vector(D - first, [&](int64_t i, auto part) {
    const Vec left = load(q + first + i, part);
#pragma GCC unroll 4
    for (int j = 0; j < kKeys; ++j)
      sums[j] = fma(left, load(k + j * step + first + i, part), sums[j]);
  });
#pragma GCC unroll 4
  for (int j = 0; j < kKeys; ++j) s[j] = sum_lanes(sums[j]) * scale;
}

template <typename T>
void score_keys(const float* q, const T* k, int64_t step, int64_t keys, int64_t D, float scale,
                float* s) {
  int64_t j = 0;
  for (; j + kKeysTogether <= keys; j += kKeysTogether)
    score<kKeysTogether>(q, k + j * step, step, D, scale, s + j);
  for (; j < keys; ++j) score<1>(q, k + j * step, step, D, scale, s + j);
}

// o = o * shrink + the values, weighted with p.
template <typename T>
void add_values(float* o, float shrink, const float* p, int64_t keys, const T* v, int64_t step,
                int64_t D) {
  constexpr int64_t kColumns = kVectorsTogether * kLanes;
  int64_t first = 0;
  for (; first + kColumns <= D; first += kColumns) {
    Vec sums[kVectorsTogether];
#pragma GCC unroll 16
    for (int i = 0; i < kVectorsTogether; ++i)
      sums[i] = load(o + first + i * kLanes) * splat(shrink);
    for (int64_t j = 0; j < keys; ++j) {
      const Vec weight = splat(p[j]);
      const T* value = v + j * step + first;
#pragma GCC unroll 16
      for (int i = 0; i < kVectorsTogether; i += 2) {
        Vec v0, v1;
        load_two(value + i * kLanes, &v0, &v1);
        sums[i] = fma(weight, v0, sums[i]);
        sums[i + 1] = fma(weight, v1, sums[i + 1]);
      }
    }
#pragma GCC unroll 16
    for (int i = 0; i < kVectorsTogether; ++i) store(o + first + i * kLanes, sums[i]);
  }
  each_vector(D - first, [&](int64_t i, auto part) {
    Vec sum = load(o + first + i, part) * splat(shrink);
    for (int64_t j = 0; j < keys; ++j)
      sum = fma(splat(p[j]), load(v + j * step + first + i, part), sum);
    store(o + first + i, sum, part);
  });
}

inline constexpr int64_t kMaxHeadDim = 256;
inline constexpr int64_t kMaxHeads = 8;  // processed together

struct Head {
  float highest = -__builtin_inff();
  float sum = 0.0f;
  float o[kMaxHeadDim] = {};
  float q[kMaxHeadDim];
};

inline float highest_of(const float* s, int64_t keys, float highest) {
  Vec most = splat(highest);
  each_vector(keys, [&](int64_t i, auto part) {
    const Vec x = fill_rest(load(s + i, part), highest, part);
    most = select(less(most, x), x, most);
  });
  return max_lanes(most);
}

template <typename T>
void add_keys(Head& head, const float* s, int64_t keys, const T* v, int64_t step, int64_t D) {
  const float highest = highest_of(s, keys, head.highest);
  float p[kBlock];
  Vec sum = zero();
  each_vector(keys, [&](int64_t i, auto part) {
    const Vec weight = fill_rest(exp(load(s + i, part) - splat(highest)), 0.0f, part);
    store(p + i, weight, part);
    sum = sum + weight;
  });
  const float shrink = exp(head.highest - highest);
  head.highest = highest;
  head.sum = head.sum * shrink + sum_lanes(sum);
  add_values(head.o, shrink, p, keys, v, step, D);
}

template <typename T>
class FewQueries {
 public:
  explicit FewQueries(const CachedAttentionArgs& args)
      : args_(args), step_(args.G * args.D), same_(args.H / args.G) {}

  // A task is some groups of heads that share keys; groups are divided where threads would idle.
  void run(const Context& context) {
    const int64_t threads = context.pool->num_threads(), shared = args_.B * args_.T * args_.G;
    parts_ = lesser(same_, greater(blocks_of(same_, kMaxHeads), blocks_of(threads, shared)));
    const int64_t groups = shared * parts_, together = greater(1, groups / (4 * threads));
    context.pool->run(blocks_of(groups, together), [&](int64_t task, int) {
      const int64_t end = lesser(groups, (task + 1) * together);
      for (int64_t group = task * together; group < end; ++group)
        attend(group_at(group), group + 1 < end ? first_keys(group_at(group + 1)) : Keys{});
    });
  }

 private:
  // Heads h to h + count of a position.
  struct Group {
    int64_t b, t, h, count;
  };
  // Consecutive ones, and their values.
  struct Keys {
    const T* k = nullptr;
    const T* v = nullptr;
    int64_t count = 0;
  };

  Group group_at(int64_t index) const {
    const int64_t part = index % parts_, shared = index / parts_, row = shared / args_.G;
    const int64_t first = same_ * part / parts_, end = same_ * (part + 1) / parts_;
    return {row / args_.T, row % args_.T, shared % args_.G * same_ + first, end - first};
  }

  // Up to 64 from `key` on.
  Keys keys_at(const Group& group, int64_t key, int64_t end) const {
    const int64_t at = group.b * args_.max_positions * step_ + group.h / same_ * args_.D;
    return {static_cast<const T*>(args_.k_cache) + at + key * step_,
            static_cast<const T*>(args_.v_cache) + at + key * step_,
            greater(0, lesser(kBlock, end - key))};
  }
  Keys first_keys(const Group& group) const {
    const SeenKeys seen = args_.seen_keys(group.b, group.t);
    return keys_at(group, seen.begin, seen.end);
  }

  // Into the L2 cache: each row is too short for the machine's own prefetcher.
  void prefetch(const Keys& keys, int64_t begin, int64_t end) const {
    constexpr int64_t kCacheLine = 64 / sizeof(T);
    for (int64_t j = begin; j < end; ++j) {
      for (int64_t i = 0; i < args_.D; i += kCacheLine) {
        __builtin_prefetch(keys.k + j * step_ + i, 0, 2);
        __builtin_prefetch(keys.v + j * step_ + i, 0, 2);
      }
    }
  }

  void attend(const Group& group, const Keys& after) const {
    const int64_t D = args_.D;
    T* out = static_cast<T*>(args_.out) + ((group.b * args_.T + group.t) * args_.H + group.h) * D;
    const SeenKeys seen = args_.seen_keys(group.b, group.t);
    if (seen.begin >= seen.end) {
      __builtin_memset(out, 0, static_cast<size_t>(group.count * D) * sizeof(T));
      return;
    }
    Head heads[kMaxHeads];
    for (int64_t i = 0; i < group.count; ++i) {
      const T* q = static_cast<const T*>(args_.q.data) + args_.q.at(group.b, group.t, group.h + i);
      each_vector(D,
                  [&](int64_t at, auto part) { store(heads[i].q + at, load(q + at, part), part); });
    }
    for (int64_t key = seen.begin; key < seen.end; key += kBlock) {
      const Keys keys = keys_at(group, key, seen.end);
      const Keys next = key + kBlock < seen.end ? keys_at(group, key + kBlock, seen.end) : after;
      for (int64_t i = 0; i < group.count; ++i) {
        prefetch(next, next.count * i / group.count, next.count * (i + 1) / group.count);
        add(heads[i], group.h + i, keys, key - seen.origin);
      }
    }
    for (int64_t i = 0; i < group.count; ++i) {
      const Vec share = splat(1.0f / heads[i].sum);
      each_vector(D, [&](int64_t at, auto part) {
        store(out + i * D + at, load(heads[i].o + at, part) * share, part);
      });
    }
  }

  void add(Head& head, int64_t h, const Keys& keys, int64_t distance) const {
    float s[kBlock];
    score_keys(head.q, keys.k, step_, keys.count, args_.D, args_.scale, s);
    if (args_.bias.kind != AttentionBias::Kind::kNone) {
      float bias[kBlock];
      fill_bias_line({args_.bias, args_.dtype, args_.H, h}, distance, 1, keys.count, bias);
      for (int64_t j = 0; j < keys.count; ++j) s[j] += bias[j];
    }
    add_keys(head, s, keys.count, keys.v, step_, args_.D);
  }

  const CachedAttentionArgs& args_;
  const int64_t step_;  // elements from one key to the next
  const int64_t same_;  // heads that share keys
  int64_t parts_ = 1;   // of these
};

}  // namespace
}  // namespace weft::WEFT_LEVEL
