// kernel/gpu/cuda_options.h: program-wide settings of the GPU kernels.
#pragma once

#include <string>

namespace weft {

// Of cuBLASLt, "13.1.0"; empty where the program was built without CUDA, or this machine has none.
std::string cublas_version();
// Of cuDNN, "9.19.0"; empty where the program was built without it, or this machine has none.
std::string cudnn_version();
// False only where WEFT_CUDNN is "off"; UserError where it is neither on nor off.
bool wants_cudnn();
// Why cuDNN is not used; empty where it is.
std::string why_no_cudnn();

// The libraries that bits depend on, "cuBLASLt 130100, cuDNN 9.19.0"; empty without CUDA.
std::string cuda_libraries();

// How a library algorithm is chosen the first time a product is seen.
enum class GemmChoice {
  kFast,   // the fastest candidate, measured once and stored in a file
  kExact,  // the first whose elements have the same bits in every cut of M and N
};

// No-op where the program was built without CUDA.
void set_gemm_choice(GemmChoice choice);
GemmChoice gemm_choice();

// Whether products of fp32 operands may round these to TF32, 10 mantissa bits: off by default.
// kExact and GPUs without TF32 (before compute capability 8.0) always compute in fp32.
void set_tf32(bool is_allowed);

}  // namespace weft
