// train/convert_states.h: what a start with --convert-states does to weights and states, in words.
#pragma once

#include <string>

#include "checkpoint/index.h"
#include "config/run_config.h"

namespace weft {

// Empty where the checkpoint has the run's own types.
std::string describe_conversion(const StoredTensors& stored, const RunConfig& config);

}  // namespace weft
