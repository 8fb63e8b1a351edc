// model/head_chunks.cpp: few enough for memory, enough for fast products.
#include "model/head_chunks.h"

#include <algorithm>

namespace weft {
namespace {

// At most this many bytes of logits exist at one time, and at most a quarter of a long pass's;
// products of fewer rows than kFewRows are slow.
constexpr int64_t kLogitBytes = int64_t{64} << 20;
constexpr int64_t kFewRows = 256;

}  // namespace

int64_t head_chunk_rows(int64_t tokens, int64_t vocab, Dtype compute) {
  const int64_t fit = kLogitBytes / (vocab * dtype_bytes(compute));
  const int64_t wanted = std::max((tokens + 3) / 4, kFewRows);
  return std::clamp<int64_t>(std::min(fit, wanted), std::min<int64_t>(tokens, 64), tokens);
}

}  // namespace weft
