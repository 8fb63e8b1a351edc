// optim/schedule.cpp: five schedules, each a factor on the base rate.
#include "optim/schedule.h"

#include <algorithm>
#include <cmath>

namespace weft {
namespace {

// Factor after warmup, before min_lr_ratio is applied.
double decay_factor(const ScheduleConfig& c, int64_t s, int64_t total) {
  const double past = static_cast<double>(s - c.warmup_steps);
  const double span = std::max(1.0, static_cast<double>(total - c.warmup_steps));
  if (c.schedule == "linear") return std::max(0.0, static_cast<double>(total - s) / span);
  if (c.schedule == "cosine") {
    return (1 + std::cos(3.14159265358979323846 * std::min(1.0, past / span))) / 2;
  }
  if (c.schedule == "wsd" && c.decay_steps > 0 && s >= total - c.decay_steps) {
    return std::max(0.0, static_cast<double>(total - s) / static_cast<double>(c.decay_steps));
  }
  return 1;
}

}  // namespace

double learning_rate(const ScheduleConfig& c, int64_t s, int64_t total) {
  if (c.schedule == "log_warmup") {
    const double steps = static_cast<double>(std::max<int64_t>(1, s));
    const double warmup = static_cast<double>(std::max<int64_t>(2, c.warmup_steps));
    return c.lr * std::min(1.0, std::log(steps) / std::log(warmup));
  }
  if (s < c.warmup_steps)
    return c.lr * static_cast<double>(s) / static_cast<double>(c.warmup_steps);
  return c.lr * (c.min_lr_ratio + (1 - c.min_lr_ratio) * decay_factor(c, s, total));
}

bool schedule_needs_total(const ScheduleConfig& config) {
  return config.schedule == "linear" || config.schedule == "cosine" || config.schedule == "wsd";
}

}  // namespace weft
