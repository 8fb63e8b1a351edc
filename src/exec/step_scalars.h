// exec/step_scalars.h: what changes from step to step, and so is no part of a bound call.
#pragma once

#include <cstdint>
#include <functional>

namespace weft {

struct StepScalars {
  int pass = 0;  // 0: gradients are stored, later ones added
  bool is_last_pass = true;
  int64_t target_tokens = 0;  // N of the whole global batch
  int64_t update = 1;         // t of AdamW, from 1
  double lr = 0, clip_norm = 0, beta1 = 0, beta2 = 0, eps = 0, weight_decay = 0;
};

// A node bound to its arguments.
using NodeCall = std::function<void(const StepScalars&)>;

}  // namespace weft
