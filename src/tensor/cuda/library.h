// tensor/cuda/library.h: libraries of CUDA that are loaded when they are first needed.
#pragma once

#include <string>

namespace weft::cuda {

struct Library {
  void* handle = nullptr;
  std::string why;  // it is absent
};

// It stays loaded as long as the program.
Library load_library(const std::string& name);

// cuBLASLt in the major version that this program was built with: no GPU is used without it.
const Library& cublas_lt();

}  // namespace weft::cuda
