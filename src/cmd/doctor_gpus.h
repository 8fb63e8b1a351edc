// cmd/doctor_gpus.h: what doctor reports about GPUs: those that weft can use, and what prevents it.
#pragma once

#include <string>
#include <vector>

#include "base/json.h"

namespace weft {

// {"driver", "runtime", "cublas", "cudnn", "nccl", "devices": [{"name", "memory_bytes",
// "capability"}]}; null where the program was built without CUDA. Absent versions are null.
Json gather_gpus();
void print_gpus(const Json& gpus);

// What is missing, and what it would be good for.
std::vector<std::string> missing_gpu_parts();

}  // namespace weft
