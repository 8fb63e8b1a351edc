// tensor/cuda/library.cpp: dlopen, and why it failed.
#include "tensor/cuda/library.h"

#include <cuda_runtime.h>
#include <dlfcn.h>
#include <fmt/core.h>

namespace weft::cuda {

Library load_library(const std::string& name) {
  if (void* handle = ::dlopen(name.c_str(), RTLD_NOW)) return {handle, ""};
  const char* reason = ::dlerror();  // it names the file
  return {nullptr, reason ? reason : name};
}

const Library& cublas_lt() {
  static const Library library =
      load_library(fmt::format("libcublasLt.so.{}", CUDART_VERSION / 1000));
  return library;
}

}  // namespace weft::cuda
