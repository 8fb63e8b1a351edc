// planning/precision.h: what `train.precision: auto` stands for on the devices of a run.
#pragma once

#include <string>
#include <vector>

#include "base/json.h"
#include "config/run_config.h"
#include "tensor/device.h"

namespace weft {

// bf16 on GPUs that all have it, else fp16, or fp32 where the model overflows fp16. No GPUs: a plan
// for another machine, whose GPUs are taken to have bf16.
std::string best_gpu_precision(const std::vector<CudaInfo::Gpu>& gpus, bool overflows);

// Replaces auto, before anything is planned: by the GPUs' best, or by fp32 on the CPU. Returns the
// line that reports it; empty where the run file names a precision.
std::string choose_precision(RunFile* file);

// Where fp16 was asked for and the model's family overflows it (model/family.h); else empty.
std::string fp16_warning(const RunConfig& config, const Json& model_config);

}  // namespace weft
