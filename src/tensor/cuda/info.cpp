// tensor/cuda/info.cpp: which GPUs there are, or why none.
#include <cuda_runtime.h>

#include "base/error.h"
#include "tensor/cuda/library.h"
#include "tensor/device.h"

namespace weft {
namespace {

std::string version_text(int version) {
  return version == 0 ? "" : fmt::format("{}.{}", version / 1000, version % 1000 / 10);
}

}  // namespace

int count_cuda_devices(std::string* why_none) {
  int driver = 0, count = 0;
  cudaDriverGetVersion(&driver);
  const cudaError_t error = cudaGetDeviceCount(&count);
  if (error == cudaSuccess && count > 0) {
    if (cuda::cublas_lt().handle) return count;
    *why_none = fmt::format("{}: matrix products on a GPU need it", cuda::cublas_lt().why);
    return 0;
  }
  if (driver == 0) {
    *why_none = "no NVIDIA driver is loaded";
  } else if (error == cudaErrorInsufficientDriver) {
    *why_none = fmt::format("the driver supports CUDA {}, this weft was built with {}",
                            version_text(driver), version_text(CUDART_VERSION));
  } else {
    *why_none = error == cudaSuccess || error == cudaErrorNoDevice
                    ? "the driver shows no GPU (is CUDA_VISIBLE_DEVICES set?)"
                    : cudaGetErrorString(error);
  }
  return 0;
}

CudaInfo read_cuda_info() {
  CudaInfo info;
  int driver = 0;
  cudaDriverGetVersion(&driver);
  info.driver = version_text(driver);
  info.runtime = version_text(CUDART_VERSION);
  const int count = count_cuda_devices(&info.why_none);
  for (int i = 0; i < count; ++i) {
    cudaDeviceProp p;
    if (cudaGetDeviceProperties(&p, i) != cudaSuccess) continue;
    info.gpus.push_back({p.name, static_cast<int64_t>(p.totalGlobalMem), p.major, p.minor});
  }
  return info;
}

}  // namespace weft
