// kernel/no_cuda/options.cpp: settings of kernels that this program does not have.
#include "kernel/gpu/cuda_options.h"

namespace weft {

std::string cublas_version() { return ""; }
std::string cudnn_version() { return ""; }
std::string why_no_cudnn() { return "this weft was built without CUDA"; }
std::string cuda_libraries() { return ""; }

void set_gemm_choice(GemmChoice) {}
GemmChoice gemm_choice() { return GemmChoice::kFast; }
void set_tf32(bool) {}

}  // namespace weft
