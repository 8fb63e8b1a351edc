// planning/backend.cpp: what was requested against what is available.
#include "planning/backend.h"

#include <algorithm>
#include <cstdio>

#include "base/environment.h"
#include "base/error.h"
#include "base/log.h"
#include "comm/nccl/nccl_library.h"
#include "config/hash_choice.h"
#include "kernel/device_kernels.h"
#include "kernel/gpu/cuda_options.h"

namespace weft {
namespace {

int64_t num_ranks(const RunConfig& c) { return c.ranks_per_node(); }  // on this machine

// One per rank; several on one GPU only on request, since they share its memory and its time.
int choose_gpu(const RunConfig& c, int local_rank) {
  std::string why;
  const int count = count_cuda_devices(&why);
  if (count >= num_ranks(c) || count == 0) return local_rank;  // none: opening it says why
  if (shares_gpus()) return local_rank % count;
  throw UserError(
      fmt::format("{} ranks need one GPU each, but this machine has {}", num_ranks(c), count),
      "lower dp or tp, or set WEFT_COMM=cuda_ipc to let ranks share a GPU");
}

void check_gpu(const RunConfig& c, int number) {
  const CudaInfo info = read_cuda_info();
  if (number < static_cast<int>(info.gpus.size()))
    check_precision(c.train.precision, info.gpus[static_cast<size_t>(number)]);
}

// The CPU's kernels have no fp16; ref's, for tests, have all.
const Kernels& kernels_of_cpu(const RunConfig& c, Purpose purpose) {
  const Kernels& kernels = cpu_kernels();
  if (c.train.precision == "fp16" && &kernels != &ref_kernels())
    throw no_fp16_here(c, find_gpus(), purpose);
  return kernels;
}

void check_any_gpu(const RunConfig& c, Purpose purpose) {
  std::string why;
  if (count_cuda_devices(&why) == 0) throw no_gpu_here(c, why, purpose);
}

std::string other_comm_words(std::string_view word) {
  const bool is_nccl = word == "nccl" || word == "NCCL";
  return is_nccl ? "; NCCL is used automatically where each rank has a GPU" : "";
}

// auto: cuda where there are enough GPUs. `option` is the user's name for `wanted`.
bool decide_gpus(const std::string& wanted, const char* option, int64_t ranks) {
  check_environment();
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
  return find_gpus().serve(ranks);
}

}  // namespace

bool serves_two_groups(const std::string& version) {
  int major = 0, minor = 0;
  if (std::sscanf(version.c_str(), "%d.%d", &major, &minor) != 2) return false;
  return major > 2 || (major == 2 && minor >= 26);
}

void check_gpu_groups(const ParallelConfig& p, const std::string& nccl) {
  const int64_t largest = std::max(p.dp, p.tp);
  if (largest > kMaxReduced && (nccl.empty() || p.mode == "exact")) {
    throw UserError(
        fmt::format("parallel.dp={} x parallel.tp={}: {} are limited to {} on each axis", p.dp,
                    p.tp,
                    nccl.empty() ? "ranks that share a GPU (WEFT_COMM=cuda_ipc)"
                                 : "ranks in exact mode with one GPU each",
                    kMaxReduced),
        nccl.empty() ? "lower dp or tp, or give each rank a GPU"
                     : "lower dp or tp, or set parallel.mode to fast");
  }
  if (nccl.empty() || p.dp == 1 || p.tp == 1 || serves_two_groups(nccl)) return;
  throw UserError(fmt::format("parallel.dp={} x parallel.tp={}: two groups of ranks communicate at "
                              "the same time, which may deadlock with NCCL {}",
                              p.dp, p.tp, nccl),
                  fmt::format("install NCCL {} or newer, or set dp or tp to 1", kNcclForTwoGroups));
}

// Products of bf16 came with compute capability 8.0.
void check_precision(const std::string& precision, const CudaInfo::Gpu& gpu) {
  if (precision != "bf16" || gpu.major >= 8) return;
  throw UserError(fmt::format("train.precision is bf16, but {} has compute capability {}.{}: bf16 "
                              "needs 8.0 or newer",
                              gpu.name, gpu.major, gpu.minor),
                  "set train.precision to fp16 or fp32");
}

// TF32 came with bf16.
std::string why_no_tf32(const RunConfig& c, const CudaInfo::Gpu* gpu) {
  if (!c.train.tf32) return "";
  if (!c.asks_tf32())
    return fmt::format("train.tf32 has no effect with train.precision: {}", c.train.precision);
  if (!gpu) return "train.tf32 has no effect on the CPU";
  if (gpu->major >= 8) return "";
  return fmt::format(
      "train.tf32 has no effect on {}, which has compute capability {}.{}: TF32 needs 8.0 or "
      "newer, and products are computed in fp32",
      gpu->name, gpu->major, gpu->minor);
}

std::string why_no_tf32_here(const RunConfig& c, bool is_on_gpu) {
  if (!is_on_gpu || !c.asks_tf32()) return why_no_tf32(c, nullptr);
  const CudaInfo info = read_cuda_info();
  return info.gpus.empty() ? "" : why_no_tf32(c, &info.gpus[0]);
}

std::string why_no_ipc_here(bool is_on_gpu) {
  return shares_gpus() && !is_on_gpu ? "WEFT_COMM=cuda_ipc has no effect on the CPU" : "";
}

std::string comm_choice() {
  return environment_choice("WEFT_COMM", {"shm", "gloo", "cuda_ipc"}, other_comm_words);
}

bool shares_gpus() { return comm_choice() == "cuda_ipc"; }

void check_environment() {
  comm_choice();
  wants_cudnn();
  static_cast<void>(hashes_word());
}

bool uses_gpus(const RunConfig& c) {
  return decide_gpus(c.launch.device, "launch.device", num_ranks(c));
}

GpusHere find_gpus() {
  GpusHere here;
  here.is_built = cuda_kernels() != nullptr;
  here.count = here.is_built ? count_cuda_devices(&here.why_none) : 0;
  here.may_share = shares_gpus();
  return here;
}

std::string first_gpu() {
  const CudaInfo info = read_cuda_info();
  return info.gpus.empty() ? "" : info.gpus[0].name;
}

const Kernels& choose_kernels(const RunConfig& c) {
  return uses_gpus(c) ? *cuda_kernels() : kernels_of_cpu(c, Purpose::kTrain);
}

void check_backend(const RunConfig& c, Purpose purpose) {
  if (!uses_gpus(c)) return static_cast<void>(kernels_of_cpu(c, purpose));
  check_any_gpu(c, purpose);
  check_gpu(c, choose_gpu(c, 0));
  if (c.parallel.dp * c.parallel.tp == 1) return;
  require(c.launch.nodes == 1 || !shares_gpus(),
          "WEFT_COMM=cuda_ipc: ranks of several nodes (launch.nodes={}) cannot share a GPU",
          c.launch.nodes);
  std::string why;
  const NcclLibrary* nccl = shares_gpus() ? nullptr : find_nccl(&why);
  if (!nccl && !shares_gpus())
    throw UserError("ranks on several GPUs communicate through NCCL: " + why,
                    "install NCCL, or set WEFT_COMM=cuda_ipc to let ranks share a GPU");
  check_gpu_groups(c.parallel, nccl ? nccl->version() : "");
}

Backend open_backend(const RunConfig& c, int local_rank, Purpose purpose) {
  if (!uses_gpus(c)) return {&kernels_of_cpu(c, purpose), &host_device(), nullptr};
  check_any_gpu(c, purpose);
  set_tf32(c.asks_tf32());
  set_gemm_choice(c.parallel.mode == "exact" ? GemmChoice::kExact : GemmChoice::kFast);
  const int number = choose_gpu(c, local_rank);
  check_gpu(c, number);
  std::unique_ptr<Device> own = open_cuda_device(number);
  if (c.train.precision != "fp32" && local_rank == 0 && cudnn_version().empty())
    log_warning("no cuDNN: using weft's built-in attention, which is slower ({})", why_no_cudnn());
  Device* device = own.get();
  return {cuda_kernels(), device, std::move(own)};
}

Backend open_backend(const std::string& device, Dtype compute) {
  if (!decide_gpus(device, "--device", 1)) return {&cpu_kernels(), &host_device(), nullptr};
  const CudaInfo info = read_cuda_info();
  const std::string hint = "give --device cpu; `weft doctor` shows what is missing";
  if (info.gpus.empty()) throw UserError("--device is cuda, but " + info.why_none, hint);
  const CudaInfo::Gpu& gpu = info.gpus[0];
  if (compute == Dtype::kBf16 && gpu.major < 8) {
    if (device == "auto") return {&cpu_kernels(), &host_device(), nullptr};
    throw UserError(fmt::format("the model is in bf16, but {} has compute capability {}.{}: bf16 "
                                "needs 8.0 or newer",
                                gpu.name, gpu.major, gpu.minor),
                    "give --device cpu");
  }
  set_gemm_choice(GemmChoice::kFast);
  set_tf32(false);
  std::unique_ptr<Device> own = open_cuda_device(0);
  Device* opened = own.get();
  return {cuda_kernels(), opened, std::move(own)};
}

}  // namespace weft
