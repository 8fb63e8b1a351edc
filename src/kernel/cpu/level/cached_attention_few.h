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

// Chains of multiply-adds that advance together: one alone waits for its own last result. Two heads
// share what is loaded, and in bf16 converted, of a key or a value.
constexpr int64_t kKeysTogether = 4;
constexpr int64_t kColumnsTogether = 64;  // of values, in all heads

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

inline constexpr int64_t kMaxHeadDim = 256;
inline constexpr int64_t kMaxHeads = 8;  // processed together

struct Head {
  float highest = -__builtin_inff();
  float sum = 0.0f;
  float o[kMaxHeadDim] = {};
  float q[kMaxHeadDim];
};

template <int kHeads, int kKeys, typename T>
WEFT_INLINE void score(const Head* heads, const T* k, int64_t step, int64_t D, float scale,
                       float (*s)[kBlock], int64_t at) {
  Vec sums[kHeads][kKeys];
#pragma GCC unroll 2
  for (int h = 0; h < kHeads; ++h) {
#pragma GCC unroll 4
    for (int j = 0; j < kKeys; ++j) sums[h][j] = zero();
  }
  int64_t first = 0;
  for (; first + 2 * kLanes <= D; first += 2 * kLanes) {
#pragma GCC unroll 4
    for (int j = 0; j < kKeys; ++j) {
      Vec k0, k1;
      load_two(k + j * step + first, &k0, &k1);
#pragma GCC unroll 2
      for (int h = 0; h < kHeads; ++h) {
        const float* q = heads[h].q + first;
        sums[h][j] = fma(load(q + kLanes), k1, fma(load(q), k0, sums[h][j]));
      }
    }
  }
  each_vector(D - first, [&](int64_t i, auto part) {
#pragma GCC unroll 4
    for (int j = 0; j < kKeys; ++j) {
      const Vec right = load(k + j * step + first + i, part);
#pragma GCC unroll 2
      for (int h = 0; h < kHeads; ++h)
        sums[h][j] = fma(load(heads[h].q + first + i, part), right, sums[h][j]);
    }
  });
#pragma GCC unroll 2
  for (int h = 0; h < kHeads; ++h) {
#pragma GCC unroll 4
    for (int j = 0; j < kKeys; ++j) s[h][at + j] = sum_lanes(sums[h][j]) * scale;
  }
}

template <int kHeads, typename T>
void score_keys(const Head* heads, const T* k, int64_t step, int64_t keys, int64_t D, float scale,
                float (*s)[kBlock]) {
  int64_t j = 0;
  for (; j + kKeysTogether <= keys; j += kKeysTogether)
    score<kHeads, kKeysTogether>(heads, k + j * step, step, D, scale, s, j);
  for (; j < keys; ++j) score<kHeads, 1>(heads, k + j * step, step, D, scale, s, j);
}

// o = o * shrink + the values, weighted with p.
template <int kHeads, typename T>
void add_values(Head* heads, const float* shrink, const float (*p)[kBlock], int64_t keys,
                const T* v, int64_t step, int64_t D) {
  constexpr int64_t kColumns = kColumnsTogether / kHeads, kVectors = kColumns / kLanes;
  int64_t first = 0;
  for (; first + kColumns <= D; first += kColumns) {
    Vec sums[kHeads][kVectors];
#pragma GCC unroll 2
    for (int h = 0; h < kHeads; ++h) {
#pragma GCC unroll 16
      for (int i = 0; i < kVectors; ++i)
        sums[h][i] = load(heads[h].o + first + i * kLanes) * splat(shrink[h]);
    }
    for (int64_t j = 0; j < keys; ++j) {
      const T* value = v + j * step + first;
#pragma GCC unroll 16
      for (int i = 0; i < kVectors; i += 2) {
        Vec v0, v1;
        load_two(value + i * kLanes, &v0, &v1);
#pragma GCC unroll 2
        for (int h = 0; h < kHeads; ++h) {
          sums[h][i] = fma(splat(p[h][j]), v0, sums[h][i]);
          sums[h][i + 1] = fma(splat(p[h][j]), v1, sums[h][i + 1]);
        }
      }
    }
#pragma GCC unroll 2
    for (int h = 0; h < kHeads; ++h) {
#pragma GCC unroll 16
      for (int i = 0; i < kVectors; ++i) store(heads[h].o + first + i * kLanes, sums[h][i]);
    }
  }
  for (int h = 0; h < kHeads; ++h) {
    float* o = heads[h].o + first;
    each_vector(D - first, [&](int64_t i, auto part) {
      Vec sum = load(o + i, part) * splat(shrink[h]);
      for (int64_t j = 0; j < keys; ++j)
        sum = fma(splat(p[h][j]), load(v + j * step + first + i, part), sum);
      store(o + i, sum, part);
    });
  }
}

inline float highest_of(const float* s, int64_t keys, float highest) {
  Vec most = splat(highest);
  each_vector(keys, [&](int64_t i, auto part) {
    const Vec x = fill_rest(load(s + i, part), highest, part);
    most = select(less(most, x), x, most);
  });
  return max_lanes(most);
}

// Of one head: the scores become weights. Returns what the sums so far are to be multiplied with.
inline float weigh(Head& head, const float* s, int64_t keys, float* p) {
  const float highest = highest_of(s, keys, head.highest);
  Vec sum = zero();
  each_vector(keys, [&](int64_t i, auto part) {
    const Vec weight = fill_rest(exp(load(s + i, part) - splat(highest)), 0.0f, part);
    store(p + i, weight, part);
    sum = sum + weight;
  });
  const float shrink = exp(head.highest - highest);
  head.highest = highest;
  head.sum = head.sum * shrink + sum_lanes(sum);
  return shrink;
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
      for (int64_t i = 0; i < group.count;) {
        const int64_t end = lesser(i + 2, group.count);
        prefetch(next, next.count * i / group.count, next.count * end / group.count);
        if (end - i == 2) {
          add<2>(heads + i, group.h + i, keys, key - seen.origin);
        } else {
          add<1>(heads + i, group.h + i, keys, key - seen.origin);
        }
        i = end;
      }
    }
    for (int64_t i = 0; i < group.count; ++i) {
      const Vec share = splat(1.0f / heads[i].sum);
      each_vector(D, [&](int64_t at, auto part) {
        store(out + i * D + at, load(heads[i].o + at, part) * share, part);
      });
    }
  }

  template <int kHeads>
  void add(Head* heads, int64_t h, const Keys& keys, int64_t distance) const {
    float s[kHeads][kBlock], p[kHeads][kBlock], shrink[kHeads];
    score_keys<kHeads>(heads, keys.k, step_, keys.count, args_.D, args_.scale, s);
    for (int i = 0; i < kHeads; ++i) {
      if (args_.bias.kind != AttentionBias::Kind::kNone) {
        float bias[kBlock];
        fill_bias_line({args_.bias, args_.dtype, args_.H, h + i}, distance, 1, keys.count, bias);
        for (int64_t j = 0; j < keys.count; ++j) s[i][j] += bias[j];
      }
      shrink[i] = weigh(heads[i], s[i], keys.count, p[i]);
    }
    add_values<kHeads>(heads, shrink, p, keys.count, keys.v, step_, args_.D);
  }

  const CachedAttentionArgs& args_;
  const int64_t step_;  // elements from one key to the next
  const int64_t same_;  // heads that share keys
  int64_t parts_ = 1;   // of these
};

}  // namespace
}  // namespace weft::WEFT_LEVEL
