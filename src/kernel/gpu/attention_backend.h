// kernel/gpu/attention_backend.h: which backend handles attention of a shape on a GPU: cuDNN, or
// the built-in kernel where cuDNN rejects it.
//
// cuDNN reports which shapes it supports on a GPU only when their graphs are built. It is queried
// at the first call of a shape, for both passes together, so that one backend handles both. In
// exact mode a rejection is an error: another layout cuts the same batch into other shapes, which
// cuDNN may support, and its bits differ from the built-in kernel's.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <string>

namespace weft {

class AttentionBackend {
 public:
  using Key = std::array<int64_t, 27>;
  // Builds the graphs of both passes. Empty, or "cuDNN 9.1.0 rejects attention ...: why".
  using Build = std::function<std::string()>;

  // Whether cuDNN handles this shape; builds at its first call. A rejection is a warning, once, or,
  // in exact mode, a UserError at every call. Exceptions from build are not cached.
  bool cudnn_supports(const Key& shape, bool is_exact, const Build& build);

 private:
  struct Known {
    std::string refusal;
    bool was_reported = false;
  };
  std::mutex mutex_;
  std::map<Key, Known> known_;
};

}  // namespace weft
