// planning/precision.cpp: the GPUs of a run are the first of the machine, one per rank.
#include "planning/precision.h"

#include <fmt/core.h>

#include <algorithm>

#include "io/hf_folder.h"
#include "model/family.h"
#include "planning/backend.h"

namespace weft {

namespace {

bool overflows_fp16(const RunConfig& c) {
  return traits_of(HfFolder(resolve_model_path(c.model.path)).config()).overflows_fp16;
}

}  // namespace

std::string best_gpu_precision(const std::vector<CudaInfo::Gpu>& gpus, bool overflows) {
  const bool have_bf16 = std::all_of(gpus.begin(), gpus.end(),
                                     [](const CudaInfo::Gpu& gpu) { return gpu.major >= 8; });
  if (have_bf16) return "bf16";
  return overflows ? "fp32" : "fp16";
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
  const bool overflows = best_gpu_precision(gpus, false) == "fp16" && overflows_fp16(c);
  file->choose_precision(best_gpu_precision(gpus, overflows));
  return fmt::format("train.precision: auto is {} on {}{}", c.train.precision,
                     gpus.empty() ? "GPUs of compute capability 8.0 or newer" : gpus[0].name,
                     overflows ? ", which has no bf16: this model overflows fp16" : "");
}

std::string fp16_warning(const RunConfig& c, const Json& model_config) {
  if (c.train.precision != "fp16" || !traits_of(model_config).overflows_fp16) return "";
  return fmt::format(
      "train.precision: fp16: trained {} models have activations beyond fp16's largest value, "
      "65504, which weft neither clamps nor computes in fp32; where a loss is not finite, use bf16 "
      "or fp32",
      family_name(model_config));
}

}  // namespace weft
