// cmd/doctor_gpus.h: what doctor tells of GPUs: those that weft could use, and what stands in the
// way.
#pragma once

#include <string>
#include <vector>

#include "base/json.h"

namespace weft {

// {"driver", "runtime", "cudnn", "nccl", "devices": [{"name", "memory_bytes", "capability"}]}; null
// where the program was built without CUDA. Versions are null where there is none.
Json gather_gpus();
void print_gpus(const Json& gpus);

// What is missing, with what it would be good for.
std::vector<std::string> missing_gpu_parts();

}  // namespace weft
