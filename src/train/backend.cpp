// train/backend.cpp: what was asked for, against what is there.
#include "train/backend.h"

#include <cstdlib>
#include <cstring>

#include "base/error.h"
#include "kernel/cuda_options.h"
#include "kernel/device_kernels.h"

namespace weft {
namespace {

int64_t num_ranks(const RunConfig& c) { return c.parallel.dp * c.parallel.tp; }

// One each; several on one only where that is asked for, since they share its memory and its time.
int choose_gpu(const RunConfig& c, int local_rank) {
  std::string why;
  const int count = count_cuda_devices(&why);
  if (count >= num_ranks(c) || count == 0) return local_rank;  // none: opening it says why
  if (shares_gpus()) return local_rank % count;
  throw UserError(fmt::format("{} ranks want a GPU each, this machine has {}", num_ranks(c), count),
                  "lower dp or tp, or set WEFT_COMM=cuda_ipc to let ranks share a GPU");
}

// Tensor cores for bf16 came with compute capability 8.0.
void check_precision(const RunConfig& c, int number) {
  const CudaInfo info = read_cuda_info();
  if (c.train.precision != "bf16" || number >= static_cast<int>(info.gpus.size())) return;
  const CudaInfo::Gpu& gpu = info.gpus[static_cast<size_t>(number)];
  if (gpu.major >= 8) return;
  throw UserError(fmt::format("train.precision is bf16, but {} has compute capability {}.{}: bf16 "
                              "needs 8.0 or newer",
                              gpu.name, gpu.major, gpu.minor),
                  "set train.precision to fp32");
}

// auto: cuda where there are GPUs enough. `option` is what the user knows `wanted` by.
bool decide_gpus(const std::string& wanted, const char* option, int64_t ranks) {
  if (wanted == "cpu") return false;
  std::string why;
  if (wanted == "cuda") {
    if (!cuda_kernels()) count_cuda_devices(&why);
    if (!why.empty()) {
      throw UserError(fmt::format("{} is cuda, but {}", option, why),
                      "set it to cpu or auto, or build weft with -DWEFT_CUDA=ON (README)");
    }
    return true;
  }
  if (!cuda_kernels()) return false;
  const int count = count_cuda_devices(&why);
  return count >= ranks || (count > 0 && shares_gpus());
}

}  // namespace

bool shares_gpus() {
  const char* comm = std::getenv("WEFT_COMM");
  return comm && std::strcmp(comm, "cuda_ipc") == 0;
}

bool uses_gpus(const RunConfig& c) {
  return decide_gpus(c.launch.device, "launch.device", num_ranks(c));
}

const Kernels& choose_kernels(const RunConfig& c) {
  return uses_gpus(c) ? *cuda_kernels() : cpu_kernels();
}

void check_backend(const RunConfig& c) {
  if (!uses_gpus(c)) return;
  std::string why;
  if (count_cuda_devices(&why) == 0)
    throw UserError("no GPU can be used: " + why, "set launch.device to cpu");
  check_precision(c, choose_gpu(c, 0));
}

Backend open_backend(const RunConfig& c, int local_rank) {
  if (!uses_gpus(c)) return {&cpu_kernels(), &host_device(), nullptr};
  set_gemm_choice(c.parallel.mode == "exact" ? GemmChoice::kExact : GemmChoice::kFast);
  const int number = choose_gpu(c, local_rank);
  check_precision(c, number);
  std::unique_ptr<Device> own = open_cuda_device(number);
  Device* device = own.get();
  return {cuda_kernels(), device, std::move(own)};
}

Backend open_backend(const std::string& device, Dtype compute) {
  if (!decide_gpus(device, "--device", 1)) return {&cpu_kernels(), &host_device(), nullptr};
  const CudaInfo info = read_cuda_info();
  const std::string hint = "give --device cpu; `weft doctor` says what is missing";
  if (info.gpus.empty()) throw UserError("--device is cuda, but " + info.why_none, hint);
  const CudaInfo::Gpu& gpu = info.gpus[0];
  if (compute == Dtype::kBf16 && gpu.major < 8) {
    throw UserError(fmt::format("the model is of bf16, but {} has compute capability {}.{}: bf16 "
                                "needs 8.0 or newer",
                                gpu.name, gpu.major, gpu.minor),
                    "give --device cpu");
  }
  set_gemm_choice(GemmChoice::kFast);
  std::unique_ptr<Device> own = open_cuda_device(0);
  Device* opened = own.get();
  return {cuda_kernels(), opened, std::move(own)};
}

}  // namespace weft
