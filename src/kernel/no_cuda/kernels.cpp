// kernel/no_cuda/kernels.cpp: a program built without CUDA has no kernels for it.
#include "kernel/device_kernels.h"

namespace weft {

const Kernels* cuda_kernels() { return nullptr; }

}  // namespace weft
