// tensor/no_cuda/device.cpp: a program built without CUDA has no GPU to open.
#include "tensor/device.h"

#include "base/error.h"

namespace weft {
namespace {

constexpr const char* kWhy = "this weft was built without CUDA";

}  // namespace

std::unique_ptr<Device> open_cuda_device(int) {
  throw UserError(kWhy, "build it with -DWEFT_CUDA=ON, or set launch.device to cpu");
}

int count_cuda_devices(std::string* why_none) {
  *why_none = kWhy;
  return 0;
}

CudaInfo read_cuda_info() { return {kWhy, "", "", {}}; }

}  // namespace weft
