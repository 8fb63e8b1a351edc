// kernel/cpu/level/attention_forward.h: one head, up to 128 queries, all keys that they see.
//
// The blocks of 64 keys are walked in order, keeping per query the highest score so far, the sum of
// exp against it and the weighted sum of values; where the highest grows, both are scaled down.
// Scores are stored as (keys, queries): the queries are the lanes of the vectors, nothing is summed
// across lanes, and the weights are at once the left operand that the product with the values
// likes. Inside, scores are in powers of two: multiplied with scale log2(e). Under dropout a weight
// is multiplied with its element of the mask where it is stored; the sum of weights is of all. A
// bias is added to the scaled scores of a block before keys are hidden.
#pragma once

#include "kernel/cpu/level/attention_block.h"
#include "kernel/cpu/level/dropout_mask.h"

namespace weft::WEFT_LEVEL {

inline constexpr int64_t kQueries = 2 * kBlock;  // all of them share a packed block of keys

// One head in memory: the addresses of query, key, value and output at position 0, and the elements
// from one position to the next.
template <typename T>
struct HeadView {
  const T* q;
  int64_t q_step;
  const T* k;
  int64_t k_step;
  const T* v;
  int64_t v_step;
  T* out;
  int64_t out_step;
  float* lse;  // or null
  int64_t D;
  float scale;
  HeadDropout dropout = {};
  int64_t begin = 0, source_begin = 0;  // of positions 0 within their rows, where there is dropout
  const float* bias = nullptr;          // by position of the query less that of the key, or null
};

// The keys that count: below num_keys; causal: of query i those up to i + ahead (positions of
// queries may be counted from another place than those of keys); window: of these the last ones.
struct KeyBounds {
  int64_t ahead = 0, num_keys = INT64_MAX;
  bool causal = true;
  int64_t window = 0;
};

template <typename Element>
struct ForwardScratch {
  Element *q, *k, *v, *staging;  // packed blocks
  float* o;                      // (128, Dp) weighted sums of values
  float* s;                      // (64, 128) scores, then weights
  float *scale, *highest, *sum;  // (128); scale: the factor to apply to the sums so far
  float* keep;                   // (64, 128) mask, only under dropout
};

WEFT_INLINE int64_t forward_floats(int64_t D, bool drops) {
  return (2 * kBlock + 2 * kQueries) * padded(D) + 2 * staging_floats(D) + kQueries * kBlock +
         3 * kQueries + (drops ? kQueries * kBlock : 0);
}

template <typename Element>
ForwardScratch<Element> forward_scratch(std::byte* workspace, int64_t D, int thread,
                                        bool drops = false) {
  float* at = reinterpret_cast<float*>(workspace) + thread * forward_floats(D, drops);
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
  scratch.staging = reinterpret_cast<Element*>(take(2 * staging_floats(D)));
  scratch.o = take(2 * block);
  scratch.s = take(kQueries * kBlock);
  scratch.scale = take(kQueries);
  scratch.highest = take(kQueries);
  scratch.sum = take(kQueries);
  scratch.keep = drops ? take(kQueries * kBlock) : nullptr;
  return scratch;
}

// Scores of keys that come after their query (key j > query i + shift) become -infinity.
[[gnu::flatten]] inline void hide_later_keys(float* s, int64_t queries, int64_t begin,
                                             int64_t shift) {
  for (int64_t j = greater(0, shift + 1); j < kBlock; ++j) {
    float* row = s + j * queries;
    const int64_t hidden = lesser(queries, j - shift);
    for (int64_t i = begin; i < hidden; i += kLanes) {
      const int n = static_cast<int>(lesser(kLanes, hidden - i));
      store(row + i, select(first_lanes(n), splat(-__builtin_inff()), load(row + i)));
    }
  }
}

// Scores of the last keys of a block become -infinity.
[[gnu::flatten]] inline void hide_last_keys(float* s, int64_t queries, int64_t begin,
                                            int64_t first_hidden) {
  for (int64_t j = first_hidden; j < kBlock; ++j) {
    for (int64_t i = begin; i < queries; i += kLanes) {
      store(s + j * queries + i, splat(-__builtin_inff()));
    }
  }
}

// Scores of keys before the window of their query (key j <= query i + shift) become
// -infinity.
[[gnu::flatten]] inline void hide_earlier_keys(float* s, int64_t queries, int64_t begin,
                                               int64_t shift) {
  for (int64_t j = 0; j < kBlock; ++j) {
    float* row = s + j * queries;
    const int64_t hidden = greater(begin, j - shift);
    for (int64_t i = hidden / kLanes * kLanes; i < queries; i += kLanes) {
      const int n = static_cast<int>(greater(0, hidden - i));
      store(row + i, select(first_lanes(n), load(row + i), splat(-__builtin_inff())));
    }
  }
}

// Products become scores; bias: of query 0 and key 0 of the block.
[[gnu::flatten]] inline void add_bias(float* s, int64_t queries, int64_t begin, float scale,
                                      const float* bias) {
  for (int64_t j = 0; j < kBlock; ++j) {
    float* row = s + j * queries;
    for (int64_t i = begin; i < queries; i += kLanes) {
      store(row + i, fma(load(row + i), splat(scale), load(bias - j + i)));
    }
  }
}

// Two vectors of queries from i on: scores become weights 2^(scale s - highest).
template <bool kDrops, typename Element>
[[gnu::flatten]] void weigh(const ForwardScratch<Element>& scratch, int64_t queries, int64_t i,
                            float scale) {
  float* s = scratch.s;
  Vec most0 = load(s + i), most1 = load(s + i + kLanes);
  for (int64_t j = 1; j < kBlock; ++j) {
    most0 = maximum(most0, load(s + j * queries + i));
    most1 = maximum(most1, load(s + j * queries + i + kLanes));
  }
  const Vec old0 = load(scratch.highest + i), old1 = load(scratch.highest + i + kLanes);
  const Vec highest0 = maximum(old0, most0 * splat(scale));
  const Vec highest1 = maximum(old1, most1 * splat(scale));
  Vec sum0 = zero(), sum1 = zero();
  const Vecs highest = {highest0, highest1, highest0, highest1};
  for (int64_t j = 0; j < kBlock; j += 2) {
    float* at = s + j * queries + i;
    float* next = at + queries;
    const Vecs scores = {load(at), load(at + kLanes), load(next), load(next + kLanes)};
    const Vecs p = exp2_of_small(fma(scores, splat(scale), zero() - highest));
    Vecs kept = p;
    if constexpr (kDrops) {
      const float* keep = scratch.keep + j * queries + i;
      kept = p * Vecs{load(keep), load(keep + kLanes), load(keep + queries),
                      load(keep + queries + kLanes)};
    }
    store(at, kept.v[0]);
    store(at + kLanes, kept.v[1]);
    store(next, kept.v[2]);
    store(next + kLanes, kept.v[3]);
    sum0 = (sum0 + p.v[0]) + p.v[2];
    sum1 = (sum1 + p.v[1]) + p.v[3];
  }
  const Vec shrink0 = exp2_of_small(old0 - highest0), shrink1 = exp2_of_small(old1 - highest1);
  store(scratch.scale + i, shrink0);
  store(scratch.scale + i + kLanes, shrink1);
  store(scratch.highest + i, highest0);
  store(scratch.highest + i + kLanes, highest1);
  store(scratch.sum + i, fma(load(scratch.sum + i), shrink0, sum0));
  store(scratch.sum + i + kLanes, fma(load(scratch.sum + i + kLanes), shrink1, sum1));
}

// Where a window leaves a query nothing of its first blocks: any finite number below all scores
// makes zeros of -infinity.
inline constexpr float kNothingSeen = -1e30f;

template <typename T, typename Element>
void begin_queries(const HeadView<T>& head, const ForwardScratch<Element>& scratch, int64_t first,
                   int64_t rows, int64_t queries, float lowest) {
  Blocks<T>::pack_rows(head.q + first * head.q_step, head.q_step, rows, head.D, scratch.q, queries,
                       scratch.staging);
  __builtin_memset(scratch.o, 0, static_cast<size_t>(queries * padded(head.D)) * sizeof(float));
  for (int64_t r = 0; r < kQueries; ++r) {
    scratch.highest[r] = lowest;
    scratch.scale[r] = scratch.sum[r] = 0.0f;
  }
}

template <typename T, typename Element>
void write_queries(const HeadView<T>& head, const ForwardScratch<Element>& scratch, int64_t first,
                   int64_t rows) {
  for (int64_t r = 0; r < rows; ++r) {
    T* out = head.out + (first + r) * head.out_step;
    const float* o = scratch.o + r * padded(head.D);
    const bool is_empty = scratch.sum[r] == 0.0f;
    const Vec share = splat(is_empty ? 0.0f : 1.0f / scratch.sum[r]);
    each_vector(head.D,
                [&](int64_t i, auto part) { store(out + i, load(o + i, part) * share, part); });
    if (!head.lse) continue;
    head.lse[first + r] = is_empty ? 0.0f : scratch.highest[r] * kLn2 + log(scratch.sum[r]);
  }
}

// Queries first .. first + rows - 1.
template <bool kDrops = false, typename T, typename Element = typename Blocks<T>::Element>
void attend_block(const HeadView<T>& head, const ForwardScratch<Element>& scratch, int64_t first,
                  int64_t rows, const KeyBounds& bounds) {
  using B = Blocks<T>;
  const int64_t D = head.D, Dp = padded(D);
  const int64_t queries = round_up(rows, kTileColumns);
  const int64_t position = first + bounds.ahead;  // of the first query, counted as keys are
  const int64_t count = bounds.causal ? lesser(bounds.num_keys, position + rows) : bounds.num_keys;
  const bool slides = bounds.window > 0;
  const int64_t skipped = slides ? greater(0, position - bounds.window + 1) / kBlock * kBlock : 0;
  begin_queries(head, scratch, first, rows, queries, slides ? kNothingSeen : -__builtin_inff());
  for (int64_t key = skipped; key < count; key += kBlock) {
    const int64_t shift = bounds.causal ? position - key : kBlock;
    const int64_t keys = lesser(kBlock, count - key);
    B::pack_rows(head.k + key * head.k_step, head.k_step, keys, D, scratch.k, kBlock,
                 scratch.staging);
    B::pack_right(head.v + key * head.v_step, head.v_step, keys, D, scratch.v);
    // Queries before `begin` precede all of these keys.
    const int64_t begin = greater(0, -shift) / kTileColumns * kTileColumns;
    const bool square = shift + begin == 0;
    float* s = scratch.s + begin;
    B::scores(queries, begin, Dp, scratch.k, scratch.q, s, square ? Shape::kUpperC : Shape::kWhole);
    if (head.bias) add_bias(scratch.s, queries, begin, head.scale, head.bias + position - key);
    if (shift < kBlock) hide_later_keys(scratch.s, queries, begin, shift);
    // Keys past the last one: causal queries that come before it do not see them anyway.
    if (key + kBlock > bounds.num_keys && shift + rows > keys) {
      hide_last_keys(scratch.s, queries, begin, keys);
    }
    if (slides) hide_earlier_keys(scratch.s, queries, begin, position - bounds.window - key);
    if constexpr (kDrops) {
      fill_keep<true>(head.dropout, head.source_begin + key, kBlock, head.begin + first + begin,
                      queries - begin, scratch.keep + begin, queries,
                      bounds.causal && head.begin == head.source_begin);
    }
    const float in_twos = head.bias ? kLog2E : head.scale * kLog2E;
    for (int64_t i = begin; i < queries; i += kTileColumns) {
      weigh<kDrops>(scratch, queries, i, in_twos);
    }
    B::template weighted<Old::kScaleAndAdd>(
        queries - begin, kBlock, Dp, s, queries, scratch.v, scratch.o + begin * Dp,
        square ? Shape::kLowerA : Shape::kWhole, scratch.staging, scratch.scale + begin);
  }
  write_queries(head, scratch, first, rows);
}

}  // namespace weft::WEFT_LEVEL
