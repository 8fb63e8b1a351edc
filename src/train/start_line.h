// train/start_line.h: what a run says of itself before its first step.
#pragma once

#include <string>
#include <vector>

#include "train/engine.h"

namespace weft {

// "494,032,768 parameters, dp=1, 2.1 GiB of memory, 4 threads, kernels neon", with what the run
// file need not say: dropout that is in force, and fp16's loss scale of the next step.
std::string start_line(const RunConfig& config, const Model& model, const Layout& layout,
                       Engine* engine, const Device& device);

}  // namespace weft
