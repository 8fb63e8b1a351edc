// train/start_line.h: what a run says of itself and its device before its first step.
#pragma once

#include <string>
#include <vector>

#include "train/engine.h"

namespace weft {

// "494,032,768 parameters, dp=1, 2.1 GiB of memory, 4 threads, kernels neon", with what the run
// file need not say: dropout that is in force, and fp16's loss scale of the next step.
std::string start_line(const RunConfig& config, const Model& model, const Layout& layout,
                       Engine* engine, const Device& device);

// Keys that were set and change nothing in this run, a line each.
std::vector<std::string> idle_keys(const RunConfig& config);
// The same of those that change nothing on this device: train.tf32, WEFT_COMM.
std::vector<std::string> idle_on(const RunConfig& config, const Device& device);

// Into the log: why this is the CPU, where a GPU would have been taken; and idle_on.
void tell_device(const RunConfig& config, const Device& device);

// "300 rows packed into 20 of 512 positions, 97.3 % of them tokens"
std::string describe_pack(const PackSize& size);

}  // namespace weft
