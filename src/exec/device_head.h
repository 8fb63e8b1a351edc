// exec/device_head.h: the head with its loss on a GPU: chunks of tokens, all of them computed.
//
// Which tokens have a target is not known when work is queued, so they are not compacted: one
// without a target has no loss and a zero gradient. The rest is as on the CPU (exec/head.h).
#pragma once

#include "exec/head.h"
#include "kernel/device_kernels.h"

namespace weft {

// Tokens whose logits exist at one time: enough for products at full speed.
inline constexpr int64_t kDeviceHeadRows = 8192;

size_t device_head_workspace(const Kernels& kernels, const HeadArgs& args);

class DeviceHead {
 public:
  DeviceHead(const Kernels& kernels, const HeadArgs& args, const Context& context);
  void run(bool accumulate) const;  // accumulate: into dweight

 private:
  struct Layout {
    int64_t logits, dweight, leaves, highest, sums, scale, local, products, total;
  };
  static Layout lay_out(const Kernels& kernels, const HeadArgs& args);
  friend size_t device_head_workspace(const Kernels& kernels, const HeadArgs& args);

  template <typename T = std::byte>
  T* at(int64_t offset) const {
    return reinterpret_cast<T*>(context_.workspace + offset);
  }
  void find_losses(int64_t begin, int64_t n) const;
  void join_leaves(int64_t begin, int64_t n) const;
  void find_dx(int64_t begin, int64_t n) const;
  void find_dweight(int64_t begin, int64_t n, bool accumulate) const;

  const Kernels& kernels_;
  HeadArgs args_;
  Layout layout_;
  Context context_, products_;
};

// In a workspace of head_logits_workspace bytes.
void run_device_head_logits(const Kernels& kernels, const Context& context,
                            const HeadLogitsArgs& args);

}  // namespace weft
