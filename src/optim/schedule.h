// optim/schedule.h: the learning rate of every step.
#pragma once

#include <cstdint>
#include <string>

namespace weft {

struct ScheduleConfig {
  std::string schedule = "constant";  // constant | linear | cosine | wsd | log_warmup
  double lr = 1e-5;
  int64_t warmup_steps = 0;
  int64_t decay_steps = 0;  // wsd: the final steps, in which the rate falls
  double min_lr_ratio = 0;
};

// Rate of the 0-based step s of `total` (total is used only where the schedule needs the end).
double learning_rate(const ScheduleConfig& config, int64_t s, int64_t total);
bool schedule_needs_total(const ScheduleConfig& config);

}  // namespace weft
