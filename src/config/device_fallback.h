// config/device_fallback.h: why a run uses the CPU, and how to get it onto GPUs.
#pragma once

#include <string>

#include "base/error.h"
#include "config/run_config.h"

namespace weft {

// What this build can use on this machine.
struct GpusHere {
  bool is_built = false;  // with CUDA
  int count = 0;
  std::string why_none;    // where the count is 0
  bool may_share = false;  // WEFT_COMM=cuda_ipc
  bool serve(int64_t ranks) const {
    return is_built && (count >= ranks || (count > 0 && may_share));
  }
};

// "launch.device is cpu", "no GPU can be used: no NVIDIA driver is loaded"; empty where GPUs are
// used.
std::string why_on_cpu(const RunConfig& config, const GpusHere& here);

// The line to print where launch.device: auto chose the CPU: "on the CPU: no GPU can be used: ...".
// Empty where the CPU was requested, or this build has nothing else.
std::string cpu_line(const RunConfig& config, const GpusHere& here);

// An evaluation's hint sets the precision on the command line: the run file belongs to a training.
enum class Purpose { kTrain, kEval };
UserError no_fp16_here(const RunConfig& config, const GpusHere& here, Purpose purpose);
UserError no_gpu_here(const RunConfig& config, const std::string& why_none, Purpose purpose);

}  // namespace weft
