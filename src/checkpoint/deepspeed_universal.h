// checkpoint/deepspeed_universal.h: DeepSpeed's universal checkpoint: a folder per parameter.
#pragma once

#include <filesystem>

#include "checkpoint/logical.h"

namespace weft {

// A step's folder with zero/ in it.
bool is_universal(const std::filesystem::path& step_folder);
// zero/NAME/fp32.pt as weights, exp_avg.pt and exp_avg_sq.pt as NAME#m and NAME#v,
// momentum_buffer.pt as NAME#momentum. UserError where a parameter has no fp32.pt.
void read_universal(const std::filesystem::path& step_folder, LogicalModel& out);

}  // namespace weft
