// train/not_finite.h: what to check when a loss or a gradient norm is not finite.
#pragma once

#include <filesystem>
#include <string>

#include "config/run_config.h"

namespace weft {

// Numbered, the likeliest first; only what applies to this run. `updates`: the number of updates so
// far: a first step says nothing about the learning rate.
std::string not_finite_hint(const RunConfig& config, int64_t updates);

// RunError with that hint where the number of this step (`what` it is) is not finite.
void check_finite(const RunConfig& config, const std::filesystem::path& run_dir, int64_t step,
                  double number, const char* what);

}  // namespace weft
