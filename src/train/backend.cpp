// train/backend.cpp: what was asked for, against what is there.
#include "train/backend.h"

#include "base/error.h"
#include "kernel/device_kernels.h"

namespace weft {
namespace {

int64_t num_ranks(const RunConfig& c) { return c.parallel.dp * c.parallel.tp; }

}  // namespace

bool uses_gpus(const RunConfig& c) {
  const std::string& wanted = c.launch.device;
  if (wanted == "cpu") return false;
  std::string why;
  if (wanted == "cuda") {
    if (!cuda_kernels()) count_cuda_devices(&why);
    if (!why.empty()) throw UserError("launch.device is cuda, but " + why, "set it to cpu or auto");
    if (num_ranks(c) > 1) {
      throw UserError(fmt::format("{} ranks on GPUs are not built yet: one is", num_ranks(c)),
                      "set dp and tp to 1, or launch.device to cpu");
    }
    return true;
  }
  return cuda_kernels() && num_ranks(c) == 1 && count_cuda_devices(&why) >= num_ranks(c);
}

const Kernels& choose_kernels(const RunConfig& c) {
  return uses_gpus(c) ? *cuda_kernels() : cpu_kernels();
}

Backend open_backend(const RunConfig& c, int local_rank) {
  if (!uses_gpus(c)) return {&cpu_kernels(), &host_device(), nullptr};
  std::unique_ptr<Device> own = open_cuda_device(local_rank);
  Device* device = own.get();
  return {cuda_kernels(), device, std::move(own)};
}

}  // namespace weft
