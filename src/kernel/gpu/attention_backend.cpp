// kernel/gpu/attention_backend.cpp: cuDNN is queried once per shape, and a rejection is logged
// once.
#include "kernel/gpu/attention_backend.h"

#include "base/error.h"
#include "base/log.h"

namespace weft {

bool AttentionBackend::cudnn_supports(const Key& shape, bool is_exact, const Build& build) {
  const std::lock_guard lock(mutex_);
  auto found = known_.find(shape);
  if (found == known_.end()) found = known_.emplace(shape, Known{build()}).first;
  Known& known = found->second;
  if (known.refusal.empty()) return true;
  if (is_exact) {
    throw UserError(
        known.refusal,
        "use a newer cuDNN, or set WEFT_CUDNN=off: then weft's slower built-in kernel is used");
  }
  if (!known.was_reported) {
    log_warning("{}; weft's slower built-in kernel handles this shape, forward and backward",
                known.refusal);
  }
  known.was_reported = true;
  return false;
}

}  // namespace weft
