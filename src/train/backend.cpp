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

void check_gpu(const RunConfig& c, int number) {
  const CudaInfo info = read_cuda_info();
  if (number < static_cast<int>(info.gpus.size()))
    check_precision(c.train.precision, info.gpus[static_cast<size_t>(number)]);
}

// The CPU's kernels have no fp16; ref's, for tests, have all.
const Kernels& kernels_of_cpu(const RunConfig& c) {
  const Kernels& kernels = cpu_kernels();
  if (c.train.precision == "fp16" && &kernels != &ref_kernels()) {
    throw UserError("train.precision is fp16, which needs a GPU; this run would be on the CPU",
                    "set train.precision to bf16 or fp32");
  }
  return kernels;
}

}  // namespace

// Products of bf16 came with compute capability 8.0.
void check_precision(const std::string& precision, const CudaInfo::Gpu& gpu) {
  if (precision != "bf16" || gpu.major >= 8) return;
  throw UserError(fmt::format("train.precision is bf16, but {} has compute capability {}.{}: bf16 "
                              "needs 8.0 or newer",
                              gpu.name, gpu.major, gpu.minor),
                  "set train.precision to fp16 or fp32");
}

bool shares_gpus() {
  const char* comm = std::getenv("WEFT_COMM");
  return comm && std::strcmp(comm, "cuda_ipc") == 0;
}

bool uses_gpus(const RunConfig& c) {
  const std::string& wanted = c.launch.device;
  if (wanted == "cpu") return false;
  std::string why;
  if (wanted == "cuda") {
    if (!cuda_kernels()) count_cuda_devices(&why);
    if (!why.empty()) throw UserError("launch.device is cuda, but " + why, "set it to cpu or auto");
    return true;
  }
  if (!cuda_kernels()) return false;
  const int count = count_cuda_devices(&why);
  return count >= num_ranks(c) || (count > 0 && shares_gpus());
}

const Kernels& choose_kernels(const RunConfig& c) {
  return uses_gpus(c) ? *cuda_kernels() : kernels_of_cpu(c);
}

void check_backend(const RunConfig& c) {
  if (!uses_gpus(c)) return static_cast<void>(kernels_of_cpu(c));
  std::string why;
  if (count_cuda_devices(&why) == 0)
    throw UserError("no GPU can be used: " + why, "set launch.device to cpu");
  check_gpu(c, choose_gpu(c, 0));
}

Backend open_backend(const RunConfig& c, int local_rank) {
  if (!uses_gpus(c)) return {&kernels_of_cpu(c), &host_device(), nullptr};
  set_gemm_choice(c.parallel.mode == "exact" ? GemmChoice::kExact : GemmChoice::kFast);
  const int number = choose_gpu(c, local_rank);
  check_gpu(c, number);
  std::unique_ptr<Device> own = open_cuda_device(number);
  Device* device = own.get();
  return {cuda_kernels(), device, std::move(own)};
}

}  // namespace weft
