// kernel/gpu/cuda_options.h: settings of the GPU's kernels that hold for the whole program.
#pragma once

#include <string>

namespace weft {

// Of cuDNN, "9.19.0"; empty where the program was built without it, or this machine has none.
std::string cudnn_version();
// WEFT_CUDNN says otherwise only with "off"; UserError where it says neither on nor off.
bool wants_cudnn();
// What stands in its way: empty, or words.
std::string why_no_cudnn();

// The libraries that bits depend on, "cuBLASLt 130100, cuDNN 9.19.0"; empty without CUDA.
std::string cuda_libraries();

// How an algorithm of the library is chosen for a product that is met for the first time.
enum class GemmChoice {
  kFast,   // the fastest of the candidates, measured once and kept in a file
  kExact,  // the first whose elements have the same bits in every cut of M and N
};

// Nothing where the program was built without CUDA.
void set_gemm_choice(GemmChoice choice);
GemmChoice gemm_choice();

// Whether products of fp32 factors may round these to TF32, 10 bits of mantissa: off until it is
// asked for. kExact and GPUs without TF32 (before compute capability 8.0) compute fp32 all the
// same.
void set_tf32(bool is_allowed);

}  // namespace weft
