// tensor/cuda/check.h: turns CUDA runtime errors into exceptions that name the call.
//
// tensor/cuda_error.h decides which errors mean a failed GPU, for the runtime and the libraries.
#pragma once

#include <cuda_runtime.h>

#include <string>

namespace weft::cuda {

[[noreturn]] void fail(cudaError_t error, const char* what);

inline void check(cudaError_t error, const char* what) {
  if (error != cudaSuccess) fail(error, what);
}

// After a failed library call. PeerError where the runtime has seen the GPU fail, whatever the
// library reports; else returns.
void fail_if_lost(const std::string& what);
// The error itself says that the GPU failed.
[[noreturn]] void fail_device(const std::string& what);

}  // namespace weft::cuda
