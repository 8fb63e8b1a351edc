// tensor/cuda/check.h: an error of the CUDA runtime becomes an exception that names the call.
//
// Which errors mean a failed GPU says tensor/cuda_error.h, for the runtime and for the libraries.
#pragma once

#include <cuda_runtime.h>

#include <string>

namespace weft::cuda {

[[noreturn]] void fail(cudaError_t error, const char* what);

inline void check(cudaError_t error, const char* what) {
  if (error != cudaSuccess) fail(error, what);
}

// A library's call failed. PeerError where the runtime has seen the GPU fail, whatever the
// library says; else nothing.
void fail_if_lost(const std::string& what);
// Its own words say that the GPU failed.
[[noreturn]] void fail_device(const std::string& what);

}  // namespace weft::cuda
