// kernel/cpu/level/attention_forward.h: one head, up to 128 queries, all keys up to their own.
//
// The blocks of 64 keys are walked in order, keeping per query the highest score so far, the sum of
// exp against it and the weighted sum of values; where the highest grows, both are scaled down.
#pragma once

#include "kernel/cpu/level/attention_block.h"

namespace weft::WEFT_LEVEL {

inline constexpr int64_t kQueries = 2 * kBlock;  // a packed block of keys serves all of them

// One head in memory: where a query, a key, a value, an output of position 0 lies, and the elements
// from one position to the next.
template <typename T>
struct HeadView {
  const T* q;
  int64_t q_step;
  const T* k;
  const T* v;
  int64_t kv_step;
  T* out;
  int64_t out_step;
  float* lse;  // or null
  int64_t D;
  float scale;
};

template <typename Element>
struct ForwardScratch {
  Element *q, *k, *v, *room;     // packed blocks
  float* o;                      // (128, Dp) weighted sums of values
  float* s;                      // (128, 64) scores, then weights
  float *scale, *highest, *sum;  // (128); scale: what the sums so far are to be multiplied with
};

WEFT_INLINE int64_t forward_floats(int64_t D) {
  return (2 * kBlock + 2 * kQueries) * padded(D) + 2 * room_floats(D) + kQueries * kBlock +
         3 * kQueries;
}

template <typename Element>
ForwardScratch<Element> forward_scratch(std::byte* workspace, int64_t D, int thread) {
  float* at = reinterpret_cast<float*>(workspace) + thread * forward_floats(D);
  const auto take = [&](int64_t n) {
    float* taken = at;
    at += n;
    return taken;
  };
  const int64_t block = kBlock * padded(D);
  ForwardScratch<Element> scratch;
  scratch.q = reinterpret_cast<Element*>(take(2 * block));
  scratch.k = reinterpret_cast<Element*>(take(block));
  scratch.v = reinterpret_cast<Element*>(take(block));
  scratch.room = reinterpret_cast<Element*>(take(2 * room_floats(D)));
  scratch.o = take(2 * block);
  scratch.s = take(kQueries * kBlock);
  scratch.scale = take(kQueries);
  scratch.highest = take(kQueries);
  scratch.sum = take(kQueries);
  return scratch;
}

// highest and scale of every query, now that this block's scores are known.
template <typename Element>
[[gnu::flatten]] void raise_highest(const ForwardScratch<Element>& scratch, int64_t begin,
                                    int64_t end, float scale) {
  for (int64_t r = begin; r < end; ++r) {
    const float* s = scratch.s + r * kBlock;
    Vec even = load(s), odd = load(s + kLanes);
#pragma GCC unroll 8
    for (int64_t i = 2 * kLanes; i < kBlock; i += 2 * kLanes) {
      even = maximum(even, load(s + i));
      odd = maximum(odd, load(s + i + kLanes));
    }
    scratch.scale[r] = max_lanes(maximum(even, odd)) * scale;
  }
  for (int64_t r = begin / kLanes * kLanes; r < end; r += kLanes) {
    const Vec old = load(scratch.highest + r);
    const Vec highest = maximum(old, load(scratch.scale + r));
    store(scratch.highest + r, highest);
    store(scratch.scale + r, exp_of_small(old - highest));
  }
}

// Scores of one query become weights exp(scale s - highest).
template <typename Element>
[[gnu::flatten]] void weigh(const ForwardScratch<Element>& scratch, int64_t row, float scale) {
  float* s = scratch.s + row * kBlock;
  const Vec minus_highest = splat(-scratch.highest[row]);
  Vec even = zero(), odd = zero();
#pragma GCC unroll 4
  for (int64_t i = 0; i < kBlock; i += 2 * kLanes) {
    const Vec p = exp_of_small(fma(load(s + i), splat(scale), minus_highest));
    const Vec q = exp_of_small(fma(load(s + i + kLanes), splat(scale), minus_highest));
    store(s + i, p);
    store(s + i + kLanes, q);
    even = even + p;
    odd = odd + q;
  }
  scratch.sum[row] = scratch.sum[row] * scratch.scale[row] + sum_lanes(even + odd);
}

// Queries first .. first + rows - 1; key j counts for query i where j <= i + ahead (positions of
// queries may be counted from another place than those of keys).
template <typename T, typename Element = typename Blocks<T>::Element>
void attend_block(const HeadView<T>& head, const ForwardScratch<Element>& scratch, int64_t first,
                  int64_t rows, int64_t ahead) {
  using B = Blocks<T>;
  const int64_t D = head.D, Dp = padded(D);
  const int64_t tiles = round_up(rows, kTileRows);
  const int64_t count = first + ahead + rows;
  B::pack_left(head.q + first * head.q_step, head.q_step, rows, D, scratch.q, tiles);
  __builtin_memset(scratch.o, 0, static_cast<size_t>(tiles * Dp) * sizeof(float));
  for (int64_t r = 0; r < kQueries; ++r) {
    scratch.highest[r] = -__builtin_inff();
    scratch.scale[r] = scratch.sum[r] = 0.0f;
  }
  for (int64_t key = 0; key < count; key += kBlock) {
    const int64_t shift = first + ahead - key;
    const int64_t keys = lesser(kBlock, count - key);
    const int64_t at = key * head.kv_step;
    B::pack_right_rows(head.k + at, head.kv_step, keys, D, scratch.k, scratch.room);
    B::pack_right(head.v + at, head.kv_step, keys, D, scratch.v);
    // Queries before `begin` come before all of these keys.
    const int64_t begin = greater(0, -shift) / kTileRows * kTileRows;
    const int64_t left = tiles - begin;
    float* s = scratch.s + begin * kBlock;
    const bool square = shift + begin == 0;
    B::scores(left, Dp, scratch.q + begin * Dp, scratch.k, s,
              square ? Shape::kLowerC : Shape::kWhole);
    if (shift < kBlock) fill_above_diagonal(s, left, shift + begin, -__builtin_inff());
    raise_highest(scratch, begin, tiles, head.scale);
    for (int64_t r = begin; r < tiles; ++r) weigh(scratch, r, head.scale);
    B::template weighted<Old::kScaleAndAdd>(left, Dp, s, scratch.v, scratch.o + begin * Dp,
                                            square ? Shape::kLowerA : Shape::kWhole, scratch.room,
                                            scratch.scale + begin);
  }
  for (int64_t r = 0; r < rows; ++r) {
    T* out = head.out + (first + r) * head.out_step;
    const float* o = scratch.o + r * Dp;
    const Vec share = splat(1.0f / scratch.sum[r]);
    each_vector(D, [&](int64_t i, auto part) { store(out + i, load(o + i, part) * share, part); });
    if (head.lse) head.lse[first + r] = scratch.highest[r] + log(scratch.sum[r]);
  }
}

}  // namespace weft::WEFT_LEVEL
