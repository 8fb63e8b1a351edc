// planning/idle_keys.h: keys without effect in a run or on its device.
#pragma once

#include <string>
#include <vector>

#include "config/run_config.h"
#include "data/batches.h"
#include "model/model.h"
#include "tensor/device.h"

namespace weft {

// Keys that were set but have no effect in this run, one line each.
std::vector<std::string> idle_keys(const RunConfig& config, const Model& model);
// The same for this device: train.tf32, WEFT_COMM.
std::vector<std::string> idle_on(const RunConfig& config, const Device& device);

// Logs why this is the CPU, where a GPU would have been used; and idle_on.
void report_device(const RunConfig& config, const Device& device);

// "300 rows packed into 20 of 512 positions, 97.3 % of them tokens"
std::string describe_pack(const PackSize& size);

}  // namespace weft
