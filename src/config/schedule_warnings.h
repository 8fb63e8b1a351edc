// config/schedule_warnings.h: warns of learning rates that are probably unintended.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "optim/schedule.h"

namespace weft {

// How many steps a run has; 0: unknown.
struct RunLength {
  int64_t steps = 0;
  bool is_bound = false;  // an upper bound: dropped rows were not counted
};
// The bound for `epochs` over this many rows; incomplete batches are dropped.
RunLength most_steps(int64_t rows, int64_t global_batch, int64_t epochs);

// Warns where warmup is longer than the run, so that train.lr is never reached; else empty.
std::string long_warmup(const ScheduleConfig& schedule, const RunLength& length);

// Where a run resumes.
struct ResumePoint {
  int64_t step = 0, updates = 0;  // done so far
  std::optional<double> last_lr;  // from metrics.jsonl; none: a new run, or unknown
};
// Warns where the rate jumps, for example because train.steps was raised after linear decay to 0;
// empty where it continues as between any two steps of the schedule.
std::string rate_jump(const ScheduleConfig& schedule, int64_t total_steps, const ResumePoint& at);

// Logs both; with a bound only the first.
void warn_of_schedule(const ScheduleConfig& schedule, const RunLength& length,
                      const ResumePoint& at);

}  // namespace weft
