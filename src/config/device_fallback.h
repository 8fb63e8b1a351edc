// config/device_fallback.h: why a run computes on the CPU, and what would put it on GPUs.
#pragma once

#include <string>

#include "base/error.h"
#include "config/run_config.h"

namespace weft {

// What this build could use on this machine.
struct GpusHere {
  bool is_built = false;  // weft, with CUDA
  int count = 0;
  std::string why_none;    // where the count is 0
  bool may_share = false;  // WEFT_COMM=cuda_ipc
  bool serve(int64_t ranks) const {
    return is_built && (count >= ranks || (count > 0 && may_share));
  }
};

// "launch.device is cpu", "no GPU can be used: no NVIDIA driver is loaded"; empty where GPUs serve.
std::string why_on_cpu(const RunConfig& config, const GpusHere& here);

// What to say where launch.device: auto came to the CPU: "on the CPU: no GPU can be used: ...".
// Empty where the CPU was asked for, or this build knows nothing else.
std::string cpu_line(const RunConfig& config, const GpusHere& here);

// An evaluation takes its precision from the command line: the run file is that of a training.
enum class Purpose { kTrain, kEval };
UserError no_fp16_here(const RunConfig& config, const GpusHere& here, Purpose purpose);
UserError no_gpu_here(const RunConfig& config, const std::string& why_none, Purpose purpose);

}  // namespace weft
