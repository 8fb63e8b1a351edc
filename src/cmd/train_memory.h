// cmd/train_memory.h: what a run does without where memory is short.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "config/run_config.h"
#include "planning/memory_check.h"

namespace weft {

// Whether launch.snapshot_every is a number that was given, not a default that may give way.
bool asks_for_snapshots(const RunFile& file);

// Where the copies for checkpoint.async do not fit (a shortage that is not empty): the default
// gives way, a request is a UserError. Returns the arguments that ranks then need.
std::vector<std::string> resolve_async(RunFile* file, const std::string& shortage);

// check_memory, and the same where the run also takes snapshots, which need more.
std::vector<std::string> resolve_copies(RunFile* file, bool is_forced,
                                        std::optional<int64_t>* planned_bytes);

}  // namespace weft
