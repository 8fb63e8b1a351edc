// kernel/attention_segments.h: which keys a query sees, for CPU code.
#pragma once

#include "kernel/kernels.h"

namespace weft {

// Queries and keys of row b without padding.
int64_t num_queries(const AttentionOperands& args, int64_t b);
int64_t num_keys(const AttentionOperands& args, int64_t b);

// Positions begin .. end - 1 of queries, and those of the keys that they may see: none where the
// row has fewer source segments.
struct AttentionSegment {
  int64_t begin, end, source_begin, source_end;
};
// The segment of query t, which is below num_queries.
AttentionSegment attention_segment(const AttentionOperands& args, int64_t b, int64_t t);

// The keys that query t sees.
SeenKeys seen_keys(const AttentionOperands& args, int64_t b, int64_t t);

}  // namespace weft
