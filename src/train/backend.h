// train/backend.h: where a run computes: the CPU, or GPUs.
#pragma once

#include <memory>
#include <string>

#include "kernel/kernels.h"
#include "tensor/device.h"
#include "train/run_config.h"

namespace weft {

// launch.device: cuda, or auto where this machine has a GPU for every rank. UserError where cuda is
// asked for and cannot be.
bool uses_gpus(const RunConfig& config);

// Several ranks may work on one GPU: WEFT_COMM=cuda_ipc, for tests and small machines.
bool shares_gpus();

// The kernels of the run, for plans: no device is touched where launch.device says which.
const Kernels& choose_kernels(const RunConfig& config);

// UserError where this GPU cannot compute in the type.
void check_precision(const std::string& precision, const CudaInfo::Gpu& gpu);

// UserError where the run cannot have the GPUs that it wants. Before ranks are started.
void check_backend(const RunConfig& config);

// A rank's device and the kernels that work on it.
struct Backend {
  const Kernels* kernels;
  Device* device;
  std::unique_ptr<Device> own;  // what `device` points to, unless it is the host
};
Backend open_backend(const RunConfig& config, int local_rank);

}  // namespace weft
