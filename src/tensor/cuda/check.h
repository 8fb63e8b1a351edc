// tensor/cuda/check.h: an error of the CUDA runtime becomes an exception that names the call.
#pragma once

#include <cuda_runtime.h>

namespace weft::cuda {

[[noreturn]] void fail(cudaError_t error, const char* what);

inline void check(cudaError_t error, const char* what) {
  if (error != cudaSuccess) fail(error, what);
}

}  // namespace weft::cuda
