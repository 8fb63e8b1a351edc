// model/traced_head.cpp: few enough rows of logits for memory, enough for fast products.
#include "model/traced_head.h"

#include <algorithm>

#include "graph/ops/head.h"
#include "tensor/names.h"

namespace weft {
namespace {

// At most this many bytes of logits exist at one time, and at most a quarter of a long pass's;
// products of fewer rows than kFewRows are slow.
constexpr int64_t kLogitBytes = int64_t{64} << 20;
constexpr int64_t kFewRows = 256;

int64_t chunk_rows(int64_t tokens, int64_t vocab, Dtype compute) {
  const int64_t fit = kLogitBytes / (vocab * dtype_bytes(compute));
  const int64_t wanted = std::max((tokens + 3) / 4, kFewRows);
  return std::clamp<int64_t>(std::min(fit, wanted), std::min<int64_t>(tokens, 64), tokens);
}

}  // namespace

Ref trace_head(Builder& g, const TracedInputs& in, const TraceOptions& options, Ref y, Ref head) {
  const Ref targets = in[names::kTargets];
  if (!targets) return ops::head_logits(g, y, head, in[names::kLast]);
  return ops::head_loss(
      g, y, head, targets,
      chunk_rows(options.batch * options.positions, g.shape(head)[0], options.compute));
}

}  // namespace weft
