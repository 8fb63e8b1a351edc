// train/not_finite.h: what to look at when a loss or a gradient norm is not finite.
#pragma once

#include <string>

#include "train/run_config.h"

namespace weft {

// Numbered, the likeliest first; only what applies to this run. `updates`: how many updates came
// before: a first step says nothing about the learning rate.
std::string not_finite_hint(const RunConfig& config, int64_t updates);

}  // namespace weft
