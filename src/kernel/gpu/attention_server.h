// kernel/gpu/attention_server.h: who serves attention of a shape on a GPU: cuDNN, or the own kernel
// where cuDNN refuses.
//
// Which shapes a cuDNN serves on a GPU it says only when their graphs are built. It is asked at the
// first call of a shape, for both passes together, so that one serves both. In exact mode a refusal
// is an error: another layout cuts the same batch into other shapes, which cuDNN may take, and its
// bits are not the own kernel's.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <string>

namespace weft {

class AttentionServers {
 public:
  using Key = std::array<int64_t, 14>;
  // Builds the graphs of both passes. Empty, or "cuDNN 9.1.0 refuses attention ...: why".
  using Build = std::function<std::string()>;

  // Whether cuDNN serves this shape; builds at its first call. Of a refusal a warning tells once,
  // or, in exact mode, a UserError at every call. What build throws is not kept.
  bool cudnn_serves(const Key& shape, bool is_exact, const Build& build);

 private:
  struct Known {
    std::string refusal;
    bool was_reported = false;
  };
  std::mutex mutex_;
  std::map<Key, Known> known_;
};

}  // namespace weft
