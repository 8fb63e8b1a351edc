// config/schedule_warnings.cpp: two checks and their messages.
#include "config/schedule_warnings.h"

#include <fmt/core.h>

#include <algorithm>

#include "base/log.h"

namespace weft {

RunLength most_steps(int64_t rows, int64_t global_batch, int64_t epochs) {
  return {rows / global_batch * epochs, true};
}

std::string long_warmup(const ScheduleConfig& c, const RunLength& length) {
  const int64_t steps = length.steps;
  if (steps <= 0 || c.warmup_steps <= steps) return "";
  return fmt::format(
      "train.warmup_steps is {}, but the run has {}{} steps: the learning rate only rises, to "
      "{:.3g} at the last step, and never reaches train.lr {:.3g}; lower warmup_steps",
      c.warmup_steps, length.is_bound ? "at most " : "", steps, learning_rate(c, steps - 1, steps),
      c.lr);
}

std::string rate_jump(const ScheduleConfig& c, int64_t total_steps, const ResumePoint& at) {
  if (!at.last_lr || at.step == 0 || at.step >= total_steps) return "";
  const double next = learning_rate(c, at.updates, total_steps);
  // What this schedule would have used at the last step; a skipped step has used `next` already.
  const double before = learning_rate(c, std::max<int64_t>(0, at.updates - 1), total_steps);
  const double slack = 0.01 * std::max(next, *at.last_lr);
  if (*at.last_lr >= std::min(before, next) - slack &&
      *at.last_lr <= std::max(before, next) + slack)
    return "";
  const std::string over =
      schedule_needs_total(c) ? fmt::format(" over {} steps", total_steps) : std::string();
  return fmt::format(
      "the learning rate jumps where the run resumes: {:.3g} at step {}, {:.3g} at step {} "
      "(schedule {}{}, lr {:.3g}): train.steps, train.epochs or the schedule was changed",
      *at.last_lr, at.step, next, at.step + 1, c.schedule, over, c.lr);
}

void warn_of_schedule(const ScheduleConfig& c, const RunLength& length, const ResumePoint& at) {
  const std::string jump = length.is_bound ? "" : rate_jump(c, length.steps, at);
  for (const std::string& line : {long_warmup(c, length), jump}) {
    if (!line.empty()) log_warning("{}", line);
  }
}

}  // namespace weft
