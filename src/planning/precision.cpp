// planning/precision.cpp: the GPUs of a run are the first of the machine, one per rank.
#include "planning/precision.h"

#include <fmt/core.h>

#include <algorithm>

#include "planning/backend.h"

namespace weft {

std::string best_gpu_precision(const std::vector<CudaInfo::Gpu>& gpus) {
  const bool have_bf16 = std::all_of(gpus.begin(), gpus.end(),
                                     [](const CudaInfo::Gpu& gpu) { return gpu.major >= 8; });
  return have_bf16 ? "bf16" : "fp16";
}

std::string choose_precision(RunFile* file) {
  const RunConfig& c = file->config();
  if (c.train.precision != "auto") return "";
  if (!uses_gpus(c)) {
    file->choose_precision("fp32");
    return "train.precision: auto is fp32 on the CPU";
  }
  std::vector<CudaInfo::Gpu> gpus = read_cuda_info().gpus;
  const auto ranks = static_cast<size_t>(c.parallel.dp * c.parallel.tp);
  if (gpus.size() > ranks) gpus.resize(ranks);
  file->choose_precision(best_gpu_precision(gpus));
  return fmt::format("train.precision: auto is {} on {}", c.train.precision,
                     gpus.empty() ? "GPUs of compute capability 8.0 or newer" : gpus[0].name);
}

}  // namespace weft
