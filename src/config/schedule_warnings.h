// config/schedule_warnings.h: learning rates that are probably not what was meant.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "optim/schedule.h"

namespace weft {

// How many steps a run has; 0: not known.
struct RunLength {
  int64_t steps = 0;
  bool is_bound = false;  // at most so many: rows that are dropped were not counted
};
// The bound of `epochs` over so many rows; incomplete batches are dropped.
RunLength most_steps(int64_t rows, int64_t global_batch, int64_t epochs);

// Warmup that is longer than the run, so that train.lr is never reached; empty: it is not.
std::string long_warmup(const ScheduleConfig& schedule, const RunLength& length);

// Where a run is resumed.
struct ResumePoint {
  int64_t step = 0, updates = 0;  // done so far
  std::optional<double> last_lr;  // of metrics.jsonl; none: a new run, or not known
};
// The rate jumps there, for example because train.steps was raised after linear decay had brought
// it to 0; empty: it goes on as the schedule does between any two steps.
std::string rate_jump(const ScheduleConfig& schedule, int64_t total_steps, const ResumePoint& at);

// Both, into the log; of a bound the first alone.
void warn_of_schedule(const ScheduleConfig& schedule, const RunLength& length,
                      const ResumePoint& at);

}  // namespace weft
