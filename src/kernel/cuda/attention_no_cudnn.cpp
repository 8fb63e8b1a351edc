// kernel/cuda/attention_no_cudnn.cpp: a program built without cuDNN: the built-in kernel handles
// all.
#include "base/error.h"
#include "kernel/cuda/attention.h"
#include "kernel/gpu/cuda_options.h"

namespace weft {

std::string cudnn_version() { return ""; }
std::string why_no_cudnn() { return "this weft was built without it"; }

namespace cuda {

bool cudnn_supports(const Context&, const AttentionArgs&) { return false; }
bool cudnn_supports(const Context&, const AttentionBackwardArgs&) { return false; }
size_t cudnn_attention_workspace(const AttentionArgs&) { return 0; }
size_t cudnn_attention_backward_workspace(const AttentionBackwardArgs&) { return 0; }

void cudnn_attention(const Context&, const AttentionArgs&) {
  throw BugError("cuDNN's attention was called, but this program was built without it");
}
void cudnn_attention_backward(const Context&, const AttentionBackwardArgs&) {
  throw BugError("cuDNN's attention was called, but this program was built without it");
}

}  // namespace cuda
}  // namespace weft
