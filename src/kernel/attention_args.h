// kernel/attention_args.h: what attention computes, and its arguments.
//
// Letters as in kernel/kernels.h, which includes this file: B rows of the batch, T queries, S keys,
// H heads, G key/value heads, D head dim.
#pragma once

#include <cstdint>

#include "tensor/dtype.h"

namespace weft {

// A tensor of heads: element (b, t, h, d) is at data[b * row + t * position + h * head + d].
template <typename Data>  // void, const void
struct StridedHeads {
  Data* data = nullptr;
  int64_t row = 0, position = 0, head = 0;  // elements from one to the next

  // By force: the CPU's levels must not share a function (kernel/levels.cmake).
  [[gnu::always_inline]] constexpr int64_t at(int64_t b, int64_t t, int64_t h) const {
    return b * row + t * position + h * head;
  }
};
using HeadsIn = StridedHeads<const void>;
using HeadsOut = StridedHeads<void>;

// Dropout of the probabilities, in training (kernel/dropout.h): what the mask is drawn from.
struct AttentionDropout {
  double rate = 0;  // 0: none, and the rest is ignored
  uint64_t seed = 0;
  int64_t site = 0;               // number of the attention in the model
  int64_t first_head = 0;         // of the model's heads, the first of this call
  const int64_t* rows = nullptr;  // (B, 2): a row's epoch and its index in the epoch
};

// Buckets of T5's relative positions (kernel/attention_bias.h makes and reads them).
inline constexpr int kMostBuckets = 128;  // on one side
struct RelativeBuckets {
  int count = 0;                      // of all
  int side = 0;                       // of one side: half of all where keys on both sides count
  bool bidirectional = false;         // keys later than the query have the second half
  int32_t begins[kMostBuckets] = {};  // the distance at which each bucket of a side begins
};

// What is added to the score of a query and a key, by their distance and the head alone.
struct AttentionBias {
  enum class Kind { kNone, kAlibi, kRelative };
  Kind kind = Kind::kNone;
  int64_t first_head = 0,
          num_heads = 0;        // ALiBi: of the model's heads, the first of this call; all
  const void* table = nullptr;  // relative: (buckets, H) of dtype
  RelativeBuckets buckets = {};
};

// Attention with grouped key/value heads: T queries to S keys and values; T x S is never stored (by
// our kernels; for cuDNN's see kernel/cuda/attention_pieces.h).
//
// Query t of row b sees the keys below source_lengths[b]; where causal, those at its own position
// and before; with a window, of those up to its own position the last `window` (its own counted). A
// query at or past lengths[b], and one that sees no key, yields zero output, lse 0 and gets no
// gradient. dout of such queries must be finite.
//
// A packed row holds several segments: positions[b T + t] counts from 0 in each, and so do
// source_positions. The queries of a row's n-th segment see the keys of its n-th source segment
// alone, and positions are those in the segments. A segment has the bits that it would have as a
// separate row (except in 16 bits on a GPU, where cuDNN handles rows but not packed ones).
// Self-attention passes the same pointers twice, and has no source.
struct AttentionOperands {
  int64_t B = 0, T = 0, S = 0, H = 0, G = 0, D = 0;
  Dtype dtype = Dtype::kF32;
  float scale = 0;  // of q·k; not 0
  bool causal = true;
  bool has_source = false;                    // keys are of other rows than the queries
  int64_t window = 0;                         // 0: none
  HeadsIn q;                                  // T positions, H heads
  HeadsIn k, v;                               // S positions, G heads
  const int32_t* lengths = nullptr;           // (B) of the queries; null: T
  const int32_t* source_lengths = nullptr;    // (B) of the keys; null: S
  const int32_t* positions = nullptr;         // (B, T); null: a row is one segment
  const int32_t* source_positions = nullptr;  // (B, S); null where positions are
  AttentionBias bias = {};
  AttentionDropout dropout = {};
  // The longest row of the same plan, of queries and of keys; one kernel handles them all.
  int64_t longest = 0, longest_source = 0;
};

struct AttentionArgs : AttentionOperands {
  HeadsOut out;          // T positions, H heads
  float* lse = nullptr;  // (B, H, T) natural logarithm of the sum; null: not needed
};

// dtable (+)= the gradient of the relative table: sums of every row and head, then rows in order.
struct AttentionBackwardArgs : AttentionOperands {
  HeadsIn out, dout;
  const float* lse = nullptr;
  HeadsOut dq, dk, dv;     // written whole
  void* dtable = nullptr;  // (buckets, H) of grad_dtype, or null where it is frozen
  Dtype grad_dtype = Dtype::kF32;
  bool accumulate = false;
};

// The keys that a query sees, begin .. end - 1; the distance of key j is j - origin.
struct SeenKeys {
  int64_t begin, end, origin;
};

// For generation: k and v of the new positions of row b, starts[b] and following (null: 0), into a
// cache. Those at or past lengths[b] (counted within T) are ignored.
struct FillCacheArgs {
  int64_t B = 0, T = 0, G = 0, D = 0, max_positions = 0;
  Dtype dtype = Dtype::kF32;
  HeadsIn k, v;  // T positions, G heads
  const int32_t* starts = nullptr;
  const int32_t* lengths = nullptr;
  void* k_cache = nullptr;  // (B, max_positions, G, D)
  void* v_cache = nullptr;
};

// For generation: T queries of row b to the keys and values of a cache. They are at positions
// starts[b] and following; each sees the keys up to its own position, with a window the last ones
// of them (its own counted). With source_lengths each sees the first source_lengths[b] keys of
// another sequence instead. Queries at or past lengths[b] (counted within T) and those that see no
// key yield zeros.
struct CachedAttentionArgs {
  int64_t B = 0, T = 0, H = 0, G = 0, D = 0, max_positions = 0;
  Dtype dtype = Dtype::kF32;
  float scale = 0;
  int64_t window = 0;  // 0: none
  HeadsIn q;           // T positions, H heads
  const int32_t* starts = nullptr;
  const int32_t* lengths = nullptr;
  const int32_t* source_lengths = nullptr;
  const void* k_cache = nullptr;  // (B, max_positions, G, D)
  const void* v_cache = nullptr;
  AttentionBias bias = {};  // not of another sequence
  void* out = nullptr;      // (B, T, H D)

  [[gnu::always_inline]] constexpr SeenKeys seen_keys(int64_t b, int64_t t) const {
    if (t >= lengths[b]) return {0, 0, 0};
    if (source_lengths) return {0, source_lengths[b], 0};
    const int64_t position = starts[b] + t;
    return {window > 0 && position >= window ? position - window + 1 : 0, position + 1, position};
  }
};

}  // namespace weft
