// planning/backend.h: where a run computes: the CPU, or GPUs.
#pragma once

#include <memory>
#include <string>

#include "config/device_fallback.h"
#include "config/run_config.h"
#include "kernel/kernels.h"
#include "tensor/device.h"

namespace weft {

// launch.device: cuda, or auto where this machine has a GPU for every rank. UserError where cuda is
// requested but unavailable.
bool uses_gpus(const RunConfig& config);

// How ranks communicate, where WEFT_COMM is set: shm, gloo (over TCP, for tests) or cuda_ipc; or
// empty.
std::string comm_choice();
// Whether several ranks may share a GPU: WEFT_COMM=cuda_ipc, for tests and small machines.
bool shares_gpus();

// UserError where WEFT_COMM, WEFT_CUDNN or WEFT_TENSOR_HASHES has an unknown value, whether or not
// a GPU is used. Called first by everything that decides where to compute.
void check_environment();

// This machine's, for config/device_fallback.h.
GpusHere find_gpus();

// The name of this machine's first GPU; empty: none, or none that this build can use.
std::string first_gpu();

// The kernels of the run, for plans: no device is touched where launch.device names one.
const Kernels& choose_kernels(const RunConfig& config);

// UserError where this GPU cannot compute in the type.
void check_precision(const std::string& precision, const CudaInfo::Gpu& gpu);

// Why train.tf32 has no effect on this GPU (null: on the CPU); or empty.
std::string why_no_tf32(const RunConfig& config, const CudaInfo::Gpu* gpu);
// The same on this machine: its CPU, or its first GPU. Empty where a GPU is planned but absent
// here.
std::string why_no_tf32_here(const RunConfig& config, bool is_on_gpu);

// A message where WEFT_COMM has no effect; or empty.
std::string why_no_ipc_here(bool is_on_gpu);

// UserError where the run cannot have the GPUs that it needs, or ranks on them could not
// communicate. Called before ranks are started.
void check_backend(const RunConfig& config, Purpose purpose = Purpose::kTrain);

// UserError where this many ranks with GPUs cannot form their groups. nccl: its version, "2.26.2";
// empty: they share GPUs.
void check_gpu_groups(const ParallelConfig& parallel, const std::string& nccl);

// From this version NCCL keeps concurrent calls of two groups in the host's order
// (NCCL_LAUNCH_ORDER_IMPLICIT).
inline constexpr const char* kNcclForTwoGroups = "2.26";
bool serves_two_groups(const std::string& nccl_version);

// A rank's device and the kernels that work on it.
struct Backend {
  const Kernels* kernels = nullptr;
  Device* device = nullptr;
  std::unique_ptr<Device> own;  // what `device` points to, unless it is the host
};
Backend open_backend(const RunConfig& config, int local_rank, Purpose purpose = Purpose::kTrain);

// For a command without a run file: its --device, auto, cpu or cuda, for one rank that computes in
// this type.
Backend open_backend(const std::string& device, Dtype compute);

}  // namespace weft
