// train/start_line.h: a run's summary before its first step.
#pragma once

#include <string>
#include <vector>

#include "train/engine.h"

namespace weft {

// "494,032,768 parameters, dp=1, 2.1 GiB of memory, 4 threads, kernels neon", with what may not be
// in the run file: the effective dropout, and fp16's loss scale of the next step.
std::string start_line(const RunConfig& config, const Model& model, const Layout& layout,
                       Engine* engine, const Device& device);

}  // namespace weft
