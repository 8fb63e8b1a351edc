// kernel/cuda/attention.cpp: dispatches attention: cuDNN where it can, the built-in kernel
// elsewhere.
#include "kernel/cuda/attention.h"

#include <algorithm>

#include "kernel/cuda/ops.h"

namespace weft::cuda {

AttentionSettings& attention_settings() {
  static AttentionSettings settings;
  return settings;
}

void attention(const Context& context, const AttentionArgs& args) {
  if (attention_settings().cudnn && cudnn_supports(context, args)) {
    cudnn_attention(context, args);
  } else {
    builtin_attention(context, args);
  }
}

size_t attention_workspace(const AttentionArgs& args, int) {
  return std::max(cudnn_attention_workspace(args), builtin_attention_workspace(args));
}

void attention_backward(const Context& context, const AttentionBackwardArgs& args) {
  if (attention_settings().cudnn && cudnn_supports(context, args)) {
    cudnn_attention_backward(context, args);
  } else {
    builtin_attention_backward(context, args);
  }
}

size_t attention_backward_workspace(const AttentionBackwardArgs& args, int) {
  return std::max(cudnn_attention_backward_workspace(args),
                  builtin_attention_backward_workspace(args));
}

}  // namespace weft::cuda
