// tests/kernel/emulated_cuda/table.cpp: the emulated kernels as tables like those of a back end.
//
// This file and src/kernel/cuda/*.cu are compiled with the namespace cuda renamed, so that a
// program built with CUDA can hold both.
#include "tests/kernel/emulated_cuda/table.h"

#include "base/error.h"
#include "kernel/cuda/attention.h"
#include "kernel/cuda/ops.h"
#include "tensor/cuda/check.h"

namespace weft {

void cuda::fail(cudaError_t, const char* what) { throw BugError(what); }

const Kernels& emulated_kernels() {
  static const Kernels table = [] {
    Kernels t = ref_kernels();
    t.name = "cuda_emulated";
    t.add = cuda::add;
    t.cached_attention = cuda::cached_attention;
    t.cached_attention_workspace = cuda::cached_attention_workspace;
    // The own attention kernels; the choice between them and cuDNN is a GPU's.
    t.attention = cuda::own_attention;
    t.attention_workspace = [](const AttentionArgs&, int) -> size_t { return 0; };
    t.attention_backward = cuda::own_attention_backward;
    t.attention_backward_workspace = [](const AttentionBackwardArgs& args, int) {
      return cuda::own_attention_backward_workspace(args);
    };
    return t;
  }();
  return table;
}

const DeviceKernels& emulated_device_kernels() {
  static const DeviceKernels table{};
  return table;
}

}  // namespace weft
