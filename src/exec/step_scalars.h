// exec/step_scalars.h: what changes from step to step, and so is not part of a bound call.
#pragma once

#include <cstdint>
#include <functional>

#include "kernel/optimizer_scalars.h"

namespace weft {

struct StepScalars {
  int pass = 0;  // 0: gradients are stored, later ones added
  bool is_last_pass = true;
  int64_t target_tokens = 0;  // N of the whole global batch
  double clip_norm = 0;
  OptimizerScalars optimizer;  // which only the update's binding and kernels read
};

// A node bound to its arguments.
using NodeCall = std::function<void(const StepScalars&)>;

}  // namespace weft
