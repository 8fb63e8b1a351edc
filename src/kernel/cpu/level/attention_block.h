// kernel/cpu/level/attention_block.h: how the attention kernels store their blocks and biases.
#pragma once

#include "kernel/attention_bias.h"
#include "kernel/attention_segments.h"
#include "kernel/cpu/level/bfmmla_blocks.h"
#include "kernel/cpu/level/float_blocks.h"
#include "kernel/cpu/level/simd_math.h"

namespace weft::WEFT_LEVEL {

template <typename T>
struct BlocksOf {
  using Type = FloatBlocks<T>;
};
#if defined(__ARM_FEATURE_BF16_VECTOR_ARITHMETIC)
template <>
struct BlocksOf<Bf16> {
  using Type = BfmmlaBlocks;
};
#endif
template <typename T>
using Blocks = typename BlocksOf<T>::Type;

// Biases by distance of every head, one line behind the other: line[origin + i] is that of queries
// and keys whose positions differ by i, as far as blocks reach beyond the last ones.
struct BiasLines {
  int64_t origin, floats;  // floats: of a line
  float* data;             // null: no bias
  const float* of_head(int64_t h) const { return data ? data + h * floats + origin : nullptr; }
};
WEFT_INLINE int64_t bias_reach(int64_t positions) {
  return round_up(positions, 2 * kBlock) + kBlock;
}
WEFT_INLINE bool has_bias(const AttentionOperands& args) {
  return args.bias.kind != AttentionBias::Kind::kNone;
}
WEFT_INLINE int64_t bias_floats(const AttentionOperands& args) {
  return bias_reach(args.T) + bias_reach(args.S);
}
WEFT_INLINE int64_t all_bias_floats(const AttentionOperands& args) {
  return has_bias(args) ? args.H * bias_floats(args) : 0;
}
// by_query: i is position of the query less that of the key, else the other way round.
inline BiasLines make_bias_lines(const Context& context, const AttentionOperands& args,
                                 bool by_query, float* data) {
  const BiasLines lines = {bias_reach(by_query ? args.S : args.T), bias_floats(args),
                           has_bias(args) ? data : nullptr};
  if (!lines.data) return lines;
  context.pool->run(args.H, [&](int64_t h, int) {
    const int64_t step = by_query ? -1 : 1;
    fill_bias_line({args.bias, args.dtype, args.H, h}, -step * lines.origin, step, lines.floats,
                   data + h * lines.floats);
  });
  return lines;
}

}  // namespace weft::WEFT_LEVEL
