// kernel/cpu/level/attention_backward.cpp: gradient of attention by blocks.
//
// A task is one key/value head of one row. For each of its query heads it walks the blocks of keys
// and, below each, the blocks of queries: P = exp(scale q·k + bias - lse) is recomputed, dP =
// dout·v, dS = P (dP - delta) scale with delta = dout·out; then dv += P^T dout, dk += dS^T q, dq +=
// dS k. dk and dv gather the query heads in order, so the result is one fixed sum. The segments of
// a packed row are processed one after the other, each as if it were a row. Under dropout, with its
// mask M recomputed by blocks: dP = M (dout·v), dv += (P M)^T dout, and all else is the same.
//
// The relative table's gradient: dS is summed by distance over the blocks of a segment and head,
// then distances into the row's buckets, finally rows in order.
#include "kernel/cpu/level/attention_block.h"
#include "kernel/cpu/level/dropout_mask.h"
#include "kernel/cpu/level/ops.h"
#include "kernel/cpu/level/rows.h"
#include "kernel/cpu/workspace.h"

namespace weft::WEFT_LEVEL {
namespace {

template <typename Element>
struct Scratch {
  float *dq, *dk, *dv;                     // (T, Dp), (S, Dp)
  float* delta;                            // (T)
  float *p, *ds;                           // (64, 64)
  float* keep;                             // (64, 64) mask, only under dropout
  Element *k_rows, *v_rows, *k;            // keys and values, packed
  Element *q_rows, *dout_rows, *q, *dout;  // queries, packed
  Element* staging;
  float* dbias;  // by distance, where the table has a gradient
};
constexpr int64_t kPacked = 7;

int64_t scratch_floats(const AttentionBackwardArgs& args) {
  const int64_t Dp = padded(args.D);
  const int64_t queries = round_up(args.T, kBlock), keys = round_up(args.S, kBlock);
  const int64_t squares = args.dropout.rate > 0 ? 3 : 2;
  return (queries + 2 * keys) * Dp + queries + squares * kBlock * kBlock + kPacked * kBlock * Dp +
         staging_floats(args.D) + (args.dtable ? bias_floats(args) : 0);
}

// Of the table's gradient, one addend per row.
int64_t partial_floats(const AttentionBackwardArgs& args) {
  return args.dtable ? args.B * args.H * args.bias.buckets.count : 0;
}

template <typename Element>
Scratch<Element> scratch_of(const Context& context, const AttentionBackwardArgs& args, int thread) {
  const int64_t Dp = padded(args.D);
  const int64_t queries = round_up(args.T, kBlock), keys = round_up(args.S, kBlock);
  float* at = reinterpret_cast<float*>(context.workspace) + thread * scratch_floats(args);
  const auto take = [&](int64_t n) {
    float* taken = at;
    at += n;
    return taken;
  };
  Scratch<Element> scratch;
  scratch.dq = take(queries * Dp);
  for (float** p : {&scratch.dk, &scratch.dv}) *p = take(keys * Dp);
  scratch.delta = take(queries);
  for (float** p : {&scratch.p, &scratch.ds}) *p = take(kBlock * kBlock);
  scratch.keep = args.dropout.rate > 0 ? take(kBlock * kBlock) : nullptr;
  for (Element** p : {&scratch.k_rows, &scratch.v_rows, &scratch.k, &scratch.q_rows,
                      &scratch.dout_rows, &scratch.q, &scratch.dout}) {
    *p = reinterpret_cast<Element*>(take(kBlock * Dp));
  }
  scratch.staging = reinterpret_cast<Element*>(take(staging_floats(args.D)));
  scratch.dbias = args.dtable ? take(bias_floats(args)) : nullptr;
  return scratch;
}

// Element (m, n), n > m, of a square block becomes `value`.
[[gnu::flatten]] void fill_above_diagonal(float* block, int64_t rows, float value) {
  for (int64_t m = 0; m < rows; ++m) {
    float* row = block + m * kBlock;
    for (int64_t n = (m + 1) / kLanes * kLanes; n < kBlock; n += kLanes) {
      const int kept = static_cast<int>(greater(0, m + 1 - n));
      store(row + n, fill_rest(load(row + n), value, Part{kept}));
    }
  }
}

// Element (m, n), n >= first, of a square block becomes `value`.
[[gnu::flatten]] void fill_columns_from(float* block, int64_t rows, int64_t first, float value) {
  for (int64_t m = 0; m < rows; ++m) {
    float* row = block + m * kBlock;
    for (int64_t n = first / kLanes * kLanes; n < kBlock; n += kLanes) {
      const int kept = static_cast<int>(greater(0, first - n));
      store(row + n, fill_rest(load(row + n), value, Part{kept}));
    }
  }
}

// Element (m, n), n <= m + shift, of a square block becomes `value`.
[[gnu::flatten]] void fill_before_window(float* block, int64_t rows, int64_t shift, float value) {
  for (int64_t m = 0; m < rows; ++m) {
    float* row = block + m * kBlock;
    const int64_t hidden = lesser(kBlock, m + shift + 1);
    for (int64_t n = 0; n < hidden; n += kLanes) {
      const int count = static_cast<int>(lesser(kLanes, hidden - n));
      store(row + n, select(first_lanes(count), splat(value), load(row + n)));
    }
  }
}

// Products become scores; bias: of query 0 and key 0 of the block, by the key's position.
[[gnu::flatten]] void add_bias(float* block, int64_t rows, float scale, const float* bias) {
  for (int64_t m = 0; m < rows; ++m) {
    float* row = block + m * kBlock;
    for (int64_t n = 0; n < kBlock; n += kLanes) {
      store(row + n, fma(load(row + n), splat(scale), load(bias - m + n)));
    }
  }
}
// Not inlined: g++ 12 forgets sums of the row before (predictive commoning), since those of the
// next begin one element earlier and its vectors overlap.
[[gnu::noinline]] void add_row(const float* row, float* sums) {
  for (int64_t n = 0; n < kBlock; n += kLanes) store(sums + n, load(sums + n) + load(row + n));
}
void add_by_distance(const float* block, int64_t rows, float* sums) {
  for (int64_t m = 0; m < rows; ++m) add_row(block + m * kBlock, sums - m);
}

WEFT_INLINE void clear(float* p, int64_t n) {
  __builtin_memset(p, 0, static_cast<size_t>(n) * sizeof(float));
}

// One segment of a task and its offset in the tensors; positions count from its first ones.
template <typename T, bool kDrops>
struct Head {
  using B = Blocks<T>;
  const AttentionBackwardArgs& args;
  const Scratch<typename B::Element>& scratch;
  const BiasLines& lines;
  int64_t b, g;
  AttentionSegment at;
  int64_t num_queries = at.end - at.begin;
  int64_t length = at.source_end - at.source_begin;  // of the keys
  int64_t Dp = padded(args.D);

  template <typename Heads>
  auto* query(const Heads& heads, int64_t t, int64_t h) const {
    using Element = std::conditional_t<std::is_same_v<Heads, HeadsIn>, const T, T>;
    return static_cast<Element*>(heads.data) + heads.at(b, at.begin + t, h);
  }
  template <typename Heads>
  auto* key_of(const Heads& heads, int64_t t) const {
    using Element = std::conditional_t<std::is_same_v<Heads, HeadsIn>, const T, T>;
    return static_cast<Element*>(heads.data) + heads.at(b, at.source_begin + t, g);
  }

  void find_deltas(int64_t h) const {
    for (int64_t t = 0; t < num_queries; ++t) {
      const T* out = query(args.out, t, h);
      const T* dout = query(args.dout, t, h);
      if (t + kRowsAhead < num_queries) {
        prefetch_row(query(args.out, t + kRowsAhead, h), args.D);
        prefetch_row(query(args.dout, t + kRowsAhead, h), args.D);
      }
      Vec sum = zero();
      each_vector(args.D, [&](int64_t i, auto part) {
        sum = fma(load(out + i, part), load(dout + i, part), sum);
      });
      scratch.delta[t] = sum_lanes(sum);
    }
  }

  // p and ds hold scores and dout·v; they become P, under dropout P M, and dS.
  [[gnu::flatten]] void weigh(int64_t r, float lse, float delta) const {
    float* p = scratch.p + r * kBlock;
    float* ds = scratch.ds + r * kBlock;
    const Vec scale = splat(args.scale);
    const Vec in_twos = splat(lines.data ? kLog2E : args.scale * kLog2E);
    const Vec minus_lse = splat(-lse * kLog2E);
    const Vec minus_delta = splat(-delta) * scale;
    for (int64_t i = 0; i < kBlock; i += kChains * kLanes) {
      const Vecs weight = exp2_of_small(fma(load(p + i, Four{}), in_twos, minus_lse));
      if constexpr (kDrops) {
        const Vecs keep = load(scratch.keep + r * kBlock + i, Four{});
        store(p + i, weight * keep, Four{});
        store(ds + i, weight * fma(load(ds + i, Four{}) * keep, scale, minus_delta), Four{});
      } else {
        store(p + i, weight, Four{});
        store(ds + i, weight * fma(load(ds + i, Four{}), scale, minus_delta), Four{});
      }
    }
  }

  // What the queries from `first` on do not see of the keys from `key` on.
  void hide_keys(int64_t key, int64_t first, int64_t tiles) const {
    if (args.causal && key == first) {
      fill_above_diagonal(scratch.p, tiles, -__builtin_inff());
      fill_above_diagonal(scratch.ds, tiles, 0.0f);
    }
    // The rest of the last block of keys is padding. Causal queries of a row come before it anyway.
    if (key + kBlock > length && (num_queries > length || !args.causal)) {
      fill_columns_from(scratch.p, tiles, length - key, -__builtin_inff());
    }
    if (args.window > 0) {
      fill_before_window(scratch.p, tiles, first - args.window - key, -__builtin_inff());
    }
  }

  void query_block(int64_t h, int64_t key, int64_t first) const {
    const bool diagonal = args.causal && key == first;
    const int64_t rows = lesser(kBlock, num_queries - first);
    const int64_t tiles = round_up(rows, kTileRows);
    const Shape lower_c = diagonal ? Shape::kLowerC : Shape::kWhole;
    const Shape upper_a = diagonal ? Shape::kUpperA : Shape::kWhole;
    const Shape lower_a = diagonal ? Shape::kLowerA : Shape::kWhole;
    B::pack_both(query(args.q, first, h), args.q.position, rows, args.D, scratch.q_rows, scratch.q);
    B::pack_both(query(args.dout, first, h), args.dout.position, rows, args.D, scratch.dout_rows,
                 scratch.dout);
    B::scores(kBlock, 0, Dp, scratch.q_rows, scratch.k_rows, scratch.p, lower_c);
    B::scores(kBlock, 0, Dp, scratch.dout_rows, scratch.v_rows, scratch.ds, lower_c);
    if (lines.data) add_bias(scratch.p, tiles, args.scale, lines.of_head(h) + key - first);
    hide_keys(key, first, tiles);
    if constexpr (kDrops) {
      fill_keep<false>(head_dropout(args.dropout, b, h), at.begin + first, rows,
                       at.source_begin + key, kBlock, scratch.keep, kBlock,
                       args.causal && at.begin == at.source_begin);
    }
    const float* lse = args.lse + (b * args.H + h) * args.T + at.begin + first;
    for (int64_t r = 0; r < rows; ++r) weigh(r, lse[r], scratch.delta[first + r]);
    clear(scratch.p + rows * kBlock, (tiles - rows) * kBlock);
    clear(scratch.ds + rows * kBlock, (tiles - rows) * kBlock);
    if (scratch.dbias)
      add_by_distance(scratch.ds, rows, scratch.dbias + lines.origin + key - first);
    const int64_t keys = diagonal ? tiles : kBlock;
    B::template weighted<Old::kAdd>(keys, tiles, Dp, scratch.p, kBlock, scratch.dout,
                                    scratch.dv + key * Dp, upper_a, scratch.staging);
    B::template weighted<Old::kAdd>(keys, tiles, Dp, scratch.ds, kBlock, scratch.q,
                                    scratch.dk + key * Dp, upper_a, scratch.staging);
    B::weighted_rows(tiles, Dp, scratch.ds, scratch.k, scratch.dq + first * Dp, lower_a,
                     scratch.staging);
  }

  void query_head(int64_t h, float* dtable) const {
    find_deltas(h);
    clear(scratch.dq, round_up(num_queries, kBlock) * Dp);
    if (scratch.dbias) clear(scratch.dbias, lines.floats);
    for (int64_t key = 0; key < length; key += kBlock) {
      const int64_t keys = lesser(kBlock, length - key);
      B::pack_both(key_of(args.k, key), args.k.position, keys, args.D, scratch.k_rows, scratch.k);
      B::pack_rows(key_of(args.v, key), args.v.position, keys, args.D, scratch.v_rows, kBlock,
                   scratch.staging);
      for (int64_t first = args.causal ? key : 0; first < num_queries; first += kBlock) {
        if (args.window > 0 && key + kBlock <= first - args.window + 1) break;
        query_block(h, key, first);
      }
    }
    write(scratch.dq, query(args.dq, 0, h), args.dq.position, num_queries);
    if (scratch.dbias) {
      add_to_buckets(args.bias.buckets, scratch.dbias + lines.origin - num_queries + 1,
                     1 - num_queries, num_queries + length - 1, 1.0f / args.scale, dtable + h,
                     args.H);
    }
  }

  void write(const float* from, T* to, int64_t step, int64_t count) const {
    for (int64_t t = 0; t < count; ++t) {
      if (t + kRowsAhead < count) prefetch_row(to + (t + kRowsAhead) * step, args.D);
      each_vector(args.D, [&](int64_t i, auto part) {
        store(to + t * step + i, load(from + t * Dp + i, part), part);
      });
    }
  }

  // dtable: of this row of the batch.
  void run(float* dtable) const {
    clear(scratch.dk, round_up(length, kBlock) * Dp);
    clear(scratch.dv, round_up(length, kBlock) * Dp);
    const int64_t group = args.H / args.G;
    for (int64_t h = g * group; h < (g + 1) * group; ++h) query_head(h, dtable);
    write(scratch.dk, key_of(args.dk, 0), args.dk.position, length);
    write(scratch.dv, key_of(args.dv, 0), args.dv.position, length);
  }
};

template <typename T>
void clear_positions(const AttentionBackwardArgs& args, const HeadsOut& heads, int64_t b, int64_t h,
                     int64_t begin, int64_t end) {
  for (int64_t t = begin; t < end; ++t) {
    T* to = static_cast<T*>(heads.data) + heads.at(b, t, h);
    __builtin_memset(to, 0, static_cast<size_t>(args.D) * sizeof(T));
  }
}

// Queries that are padding and keys that nobody sees have gradient zero.
template <bool kDrops, typename T>
void run_row(const AttentionBackwardArgs& args, const Scratch<typename Blocks<T>::Element>& scratch,
             const BiasLines& lines, int64_t b, int64_t g, float* dtable) {
  const int64_t queries = num_queries(args, b), group = args.H / args.G;
  for (int64_t h = g * group; h < (g + 1) * group; ++h) {
    clear_positions<T>(args, args.dq, b, h, queries, args.T);
    for (int i = 0; dtable && i < args.bias.buckets.count; ++i) dtable[i * args.H + h] = 0.0f;
  }
  int64_t done = 0;  // keys before this one
  for (int64_t t = 0; t < queries;) {
    const AttentionSegment at = attention_segment(args, b, t);
    Head<T, kDrops>{args, scratch, lines, b, g, at}.run(dtable);
    done = at.source_end;
    t = at.end;
  }
  clear_positions<T>(args, args.dk, b, g, done, args.S);
  clear_positions<T>(args, args.dv, b, g, done, args.S);
}

}  // namespace

size_t attention_backward_workspace(const AttentionBackwardArgs& args, int num_threads) {
  return static_cast<size_t>(scratch_floats(args) * num_threads + all_bias_floats(args) +
                             partial_floats(args)) *
         sizeof(float);
}

void attention_backward(const Context& context, const AttentionBackwardArgs& args) {
  check_workspace("attention_backward",
                  attention_backward_workspace(args, context.pool->num_threads()),
                  context.workspace_bytes);
  float* behind = reinterpret_cast<float*>(context.workspace) +
                  scratch_floats(args) * context.pool->num_threads();
  const BiasLines lines = make_bias_lines(context, args, false, behind);
  float* partials = args.dtable ? behind + all_bias_floats(args) : nullptr;
  const int64_t table = args.H * args.bias.buckets.count;
  with_type(args.dtype, [&](auto value) {
    context.pool->run(args.B * args.G, [&](int64_t task, int thread) {
      using T = decltype(value);
      const auto scratch = scratch_of<typename Blocks<T>::Element>(context, args, thread);
      const int64_t b = task / args.G, g = task % args.G;
      float* dtable = partials ? partials + b * table : nullptr;
      if (args.dropout.rate > 0) {
        run_row<true, T>(args, scratch, lines, b, g, dtable);
      } else {
        run_row<false, T>(args, scratch, lines, b, g, dtable);
      }
    });
  });
  if (!partials) return;
  with_type(args.grad_dtype, [&](auto gradient) {
    add_partials(context, partials, args.B, table, 0, table,
                 static_cast<decltype(gradient)*>(args.dtable), args.accumulate);
  });
}

}  // namespace weft::WEFT_LEVEL
