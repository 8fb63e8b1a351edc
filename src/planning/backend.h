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
// asked for and cannot be.
bool uses_gpus(const RunConfig& config);

// How ranks talk, where WEFT_COMM says it: shm, gloo (over TCP, for tests) or cuda_ipc; or empty.
std::string comm_choice();
// Several ranks may work on one GPU: WEFT_COMM=cuda_ipc, for tests and small machines.
bool shares_gpus();

// UserError where WEFT_COMM, WEFT_CUDNN or WEFT_TENSOR_HASHES holds a word that is not known,
// whether or not a GPU is used. All that decide where to compute call it first.
void check_environment();

// This machine's, for config/device_fallback.h.
GpusHere find_gpus();

// The name of this machine's first GPU; empty: none, or none that this build could use.
std::string first_gpu();

// The kernels of the run, for plans: no device is touched where launch.device says which.
const Kernels& choose_kernels(const RunConfig& config);

// UserError where this GPU cannot compute in the type.
void check_precision(const std::string& precision, const CudaInfo::Gpu& gpu);

// Why train.tf32, which was asked for, changes nothing on this GPU (null: on the CPU): words, or
// empty.
std::string why_no_tf32(const RunConfig& config, const CudaInfo::Gpu* gpu);
// The same on this machine: its CPU, or its first GPU. Empty where a GPU is planned for and none is
// here.
std::string why_no_tf32_here(const RunConfig& config, bool is_on_gpu);

// WEFT_COMM where it changes nothing: words, or empty.
std::string why_no_ipc_here(bool is_on_gpu);

// UserError where the run cannot have the GPUs that it wants, or ranks on them could not talk.
// Before ranks are started.
void check_backend(const RunConfig& config);

// UserError where so many ranks with a GPU cannot form their groups. nccl: its version, "2.26.2";
// empty: they share GPUs.
void check_gpu_groups(const ParallelConfig& parallel, const std::string& nccl);

// NCCL from here on keeps the calls of two groups that run at once in the host's order
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

// Of a command without a run file: its --device, auto, cpu or cuda, for one rank that computes in
// this type.
Backend open_backend(const std::string& device, Dtype compute);

}  // namespace weft
