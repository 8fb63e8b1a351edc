// tensor/cuda_error.h: what a CUDA runtime error means, decided in one place.
#pragma once

#include <string>
#include <string_view>

namespace weft {

enum class CudaTrouble {
  kDevice,  // the GPU, its driver or the link to it failed; all its work is lost
  kMemory,  // out of GPU or pinned memory
  kSetup,   // this machine's driver or GPU cannot run this program
  kOurs,    // weft made an invalid call
};

// By the name that cudaGetErrorName returns.
CudaTrouble trouble_of(std::string_view error_name);

// PeerError, RunError, UserError or BugError, as trouble_of says; names host and GPU.
[[noreturn]] void throw_cuda_error(std::string_view error_name, std::string_view text, int gpu,
                                   const std::string& what);

// "GPU 3 of node-7"
std::string name_gpu(int gpu);

}  // namespace weft
