// kernel/cpu/level/attention_backward.cpp: gradient of causal attention by blocks.
//
// A task is one key/value head of one row. For each of its query heads it walks the blocks of keys
// and, below each, the blocks of queries: P = exp(scale q·k - lse) is made again, dP = dout·v,
// dS = P (dP - delta) scale with delta = dout·out; then dv += P^T dout, dk += dS^T q, dq += dS k.
// dk and dv gather the query heads in order, so the result is one fixed sum. The segments of a
// packed row are taken one after the other, each as if it were a row. Where padding attends, a row
// has more queries than keys. Under dropout, with its mask M made again by blocks: dP = M (dout·v),
// dv += (P M)^T dout, and all else is the same.
#include "kernel/cpu/level/attention_block.h"
#include "kernel/cpu/level/dropout_mask.h"
#include "kernel/cpu/level/ops.h"
#include "kernel/cpu/workspace.h"

namespace weft::WEFT_LEVEL {
namespace {

template <typename Element>
struct Scratch {
  float *dq, *dk, *dv;                     // (T, Dp)
  float* delta;                            // (T)
  float *p, *ds;                           // (64, 64)
  float* keep;                             // (64, 64) mask, under dropout alone
  Element *k_rows, *v_rows, *k;            // keys and values, packed
  Element *q_rows, *dout_rows, *q, *dout;  // queries, packed
  Element* room;
};
constexpr int64_t kPacked = 7;

int64_t scratch_floats(int64_t T, int64_t D, bool drops) {
  const int64_t Dp = padded(D);
  const int64_t all = round_up(T, kBlock);
  return 3 * all * Dp + all + (drops ? 3 : 2) * kBlock * kBlock + kPacked * kBlock * Dp +
         room_floats(D);
}

template <typename Element>
Scratch<Element> scratch_of(const Context& context, const AttentionBackwardArgs& args, int thread) {
  const int64_t T = args.T, D = args.D;
  const bool drops = args.dropout.rate > 0;
  const int64_t all = round_up(T, kBlock);
  float* at = reinterpret_cast<float*>(context.workspace) + thread * scratch_floats(T, D, drops);
  const auto take = [&](int64_t n) {
    float* taken = at;
    at += n;
    return taken;
  };
  Scratch<Element> scratch;
  for (float** p : {&scratch.dq, &scratch.dk, &scratch.dv}) *p = take(all * padded(D));
  scratch.delta = take(all);
  for (float** p : {&scratch.p, &scratch.ds}) *p = take(kBlock * kBlock);
  scratch.keep = drops ? take(kBlock * kBlock) : nullptr;
  for (Element** p : {&scratch.k_rows, &scratch.v_rows, &scratch.k, &scratch.q_rows,
                      &scratch.dout_rows, &scratch.q, &scratch.dout}) {
    *p = reinterpret_cast<Element*>(take(kBlock * padded(D)));
  }
  scratch.room = reinterpret_cast<Element*>(take(room_floats(D)));
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

WEFT_INLINE void clear(float* p, int64_t n) {
  __builtin_memset(p, 0, static_cast<size_t>(n) * sizeof(float));
}

// One segment of a task and its place in the tensors; t counts from its first position.
template <typename T, bool kDrops>
struct Head {
  using B = Blocks<T>;
  const AttentionBackwardArgs& args;
  const Scratch<typename B::Element>& scratch;
  int64_t b, g;
  int64_t begin, length;  // length: of the keys
  int64_t num_queries;
  int64_t width = (args.H + 2 * args.G) * args.D;
  int64_t Dp = padded(args.D);
  int64_t row = b * args.T + begin;

  const T* qkv(int64_t t, int64_t head) const {
    return static_cast<const T*>(args.qkv) + (row + t) * width + head * args.D;
  }
  T* dqkv(int64_t t, int64_t head) const {
    return static_cast<T*>(args.dqkv) + (row + t) * width + head * args.D;
  }
  int64_t o(int64_t t, int64_t h) const { return ((row + t) * args.H + h) * args.D; }

  void find_deltas(int64_t h) const {
    for (int64_t t = 0; t < num_queries; ++t) {
      const T* out = static_cast<const T*>(args.out) + o(t, h);
      const T* dout = static_cast<const T*>(args.dout) + o(t, h);
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
    const Vec in_twos = splat(args.scale * kLog2E);
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

  void query_block(int64_t h, int64_t key, int64_t first) const {
    const bool diagonal = key == first;
    const int64_t rows = lesser(kBlock, num_queries - first);
    const int64_t tiles = round_up(rows, kTileRows);
    const Shape lower_c = diagonal ? Shape::kLowerC : Shape::kWhole;
    const Shape upper_a = diagonal ? Shape::kUpperA : Shape::kWhole;
    const Shape lower_a = diagonal ? Shape::kLowerA : Shape::kWhole;
    const T* q = qkv(first, h);
    const T* d = static_cast<const T*>(args.dout) + o(first, h);
    B::pack_both(q, width, rows, args.D, scratch.q_rows, scratch.q);
    B::pack_both(d, args.H * args.D, rows, args.D, scratch.dout_rows, scratch.dout);
    B::scores(kBlock, 0, Dp, scratch.q_rows, scratch.k_rows, scratch.p, lower_c);
    B::scores(kBlock, 0, Dp, scratch.dout_rows, scratch.v_rows, scratch.ds, lower_c);
    if (diagonal) {
      fill_above_diagonal(scratch.p, tiles, -__builtin_inff());
      fill_above_diagonal(scratch.ds, tiles, 0.0f);
    }
    // Queries behind the row come after the rest of its last block of keys, which is no key.
    if (num_queries > length && key + kBlock > length) {
      fill_columns_from(scratch.p, tiles, length - key, -__builtin_inff());
    }
    if constexpr (kDrops) {
      fill_keep<false>(head_dropout(args.dropout, b, h), begin + first, rows, begin + key, kBlock,
                       scratch.keep, kBlock);
    }
    const float* lse = args.lse + (b * args.H + h) * args.T + begin + first;
    for (int64_t r = 0; r < rows; ++r) weigh(r, lse[r], scratch.delta[first + r]);
    clear(scratch.p + rows * kBlock, (tiles - rows) * kBlock);
    clear(scratch.ds + rows * kBlock, (tiles - rows) * kBlock);
    const int64_t keys = diagonal ? tiles : kBlock;
    B::template weighted<Old::kAdd>(keys, tiles, Dp, scratch.p, kBlock, scratch.dout,
                                    scratch.dv + key * Dp, upper_a, scratch.room);
    B::template weighted<Old::kAdd>(keys, tiles, Dp, scratch.ds, kBlock, scratch.q,
                                    scratch.dk + key * Dp, upper_a, scratch.room);
    B::weighted_rows(tiles, Dp, scratch.ds, scratch.k, scratch.dq + first * Dp, lower_a,
                     scratch.room);
  }

  void query_head(int64_t h) const {
    find_deltas(h);
    clear(scratch.dq, round_up(num_queries, kBlock) * Dp);
    for (int64_t key = 0; key < length; key += kBlock) {
      const int64_t keys = lesser(kBlock, length - key);
      const T* k = qkv(key, args.H + g);
      const T* v = qkv(key, args.H + args.G + g);
      B::pack_both(k, width, keys, args.D, scratch.k_rows, scratch.k);
      B::pack_rows(v, width, keys, args.D, scratch.v_rows, kBlock, scratch.room);
      for (int64_t first = key; first < num_queries; first += kBlock) query_block(h, key, first);
    }
    write(scratch.dq, h, num_queries);
  }

  void write(const float* from, int64_t head, int64_t count) const {
    for (int64_t t = 0; t < count; ++t) {
      T* to = dqkv(t, head);
      each_vector(args.D, [&](int64_t i, auto part) {
        store(to + i, load(from + t * Dp + i, part), part);
      });
    }
  }

  void run() const {
    clear(scratch.dk, round_up(length, kBlock) * Dp);
    clear(scratch.dv, round_up(length, kBlock) * Dp);
    const int64_t group = args.H / args.G;
    for (int64_t h = g * group; h < (g + 1) * group; ++h) query_head(h);
    write(scratch.dk, args.H + g, length);
    write(scratch.dv, args.H + args.G + g, length);
  }

  void clear_gradients() const {
    const int64_t group = args.H / args.G;
    const size_t bytes = static_cast<size_t>(args.D) * sizeof(T);
    for (int64_t t = 0; t < length; ++t) {
      __builtin_memset(dqkv(t, g * group), 0, static_cast<size_t>(group) * bytes);
      __builtin_memset(dqkv(t, args.H + g), 0, bytes);
      __builtin_memset(dqkv(t, args.H + args.G + g), 0, bytes);
    }
  }
};

template <bool kDrops, typename T>
void run_row(const AttentionBackwardArgs& args, const Scratch<typename Blocks<T>::Element>& scratch,
             int64_t b, int64_t g) {
  const int32_t* positions = args.positions ? args.positions + b * args.T : nullptr;
  const int64_t length = lesser(args.T, args.lengths[b]);
  // The padding behind the last segment has no gradient, but as queries that attend.
  Head<T, kDrops>{args, scratch, b, g, length, args.T - length, 0}.clear_gradients();
  for (int64_t t = 0; t < length;) {
    const int64_t end = segment_end(positions, t, length);
    const int64_t num_queries = args.padding_attends ? args.T : end - t;
    Head<T, kDrops>{args, scratch, b, g, t, end - t, num_queries}.run();
    t = end;
  }
}

}  // namespace

size_t attention_backward_workspace(const AttentionBackwardArgs& args, int num_threads) {
  return static_cast<size_t>(scratch_floats(args.T, args.D, args.dropout.rate > 0) * num_threads) *
         sizeof(float);
}

void attention_backward(const Context& context, const AttentionBackwardArgs& args) {
  check_workspace("attention_backward",
                  attention_backward_workspace(args, context.pool->num_threads()),
                  context.workspace_bytes);
  with_type(args.dtype, [&](auto value) {
    context.pool->run(args.B * args.G, [&](int64_t task, int thread) {
      using T = decltype(value);
      const auto scratch = scratch_of<typename Blocks<T>::Element>(context, args, thread);
      if (args.dropout.rate > 0) {
        run_row<true, T>(args, scratch, task / args.G, task % args.G);
      } else {
        run_row<false, T>(args, scratch, task / args.G, task % args.G);
      }
    });
  });
}

}  // namespace weft::WEFT_LEVEL
