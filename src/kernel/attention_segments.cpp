// kernel/attention_segments.cpp: out of line, so that levels do not each compile it.
#include "kernel/attention_segments.h"

#include <algorithm>

namespace weft {
namespace {

// Behind the segment that t is in; a segment begins where its position is 0.
int64_t end_of(const int32_t* positions, int64_t t, int64_t length) {
  for (++t; t < length && positions[t] != 0;) ++t;
  return t;
}

}  // namespace

int64_t num_queries(const AttentionOperands& args, int64_t b) {
  return args.lengths ? std::clamp<int64_t>(args.lengths[b], 0, args.T) : args.T;
}
int64_t num_keys(const AttentionOperands& args, int64_t b) {
  return args.source_lengths ? std::clamp<int64_t>(args.source_lengths[b], 0, args.S) : args.S;
}

AttentionSegment attention_segment(const AttentionOperands& args, int64_t b, int64_t t) {
  const int64_t queries = num_queries(args, b), keys = num_keys(args, b);
  if (!args.positions) return {0, queries, 0, keys};
  const int32_t* positions = args.positions + b * args.T;
  const int64_t begin = t - positions[t], end = end_of(positions, t, queries);
  const int32_t* source = args.source_positions + b * args.S;
  if (source == positions) return {begin, end, std::min(begin, keys), std::min(end, keys)};
  int64_t source_begin = 0;
  for (int64_t at = end_of(positions, 0, queries); at <= begin; at = end_of(positions, at, queries))
    source_begin = source_begin < keys ? end_of(source, source_begin, keys) : keys;
  const int64_t source_end = source_begin < keys ? end_of(source, source_begin, keys) : keys;
  return {begin, end, source_begin, source_end};
}

SeenKeys seen_keys(const AttentionOperands& args, int64_t b, int64_t t) {
  if (t >= num_queries(args, b)) return {0, 0, 0};
  const AttentionSegment segment = attention_segment(args, b, t);
  const int64_t origin = segment.source_begin + t - segment.begin;
  SeenKeys seen = {segment.source_begin, segment.source_end, origin};
  if (args.causal) seen.end = std::min(seen.end, origin + 1);
  if (args.window > 0) seen.begin = std::max(seen.begin, origin - args.window + 1);
  return seen;
}

}  // namespace weft
