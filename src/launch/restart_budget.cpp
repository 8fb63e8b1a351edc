// launch/restart_budget.cpp: counts, forgets, and puts into words.
#include "launch/restart_budget.h"

#include <fmt/core.h>

namespace weft {

int64_t RestartBudget::used(int64_t last_step) const {
  if (reset_steps_ > 0 && last_step - step_ >= reset_steps_) return 0;
  return count_;
}

bool RestartBudget::allows(int64_t last_step) {
  count_ = used(last_step);
  if (count_ == 0) restarts_.clear();
  const bool is_allowed = most_ < 0 || count_ < most_;
  is_spent_ = !is_allowed && most_ > 0;
  return is_allowed;
}

void RestartBudget::count(const std::string& reason, int64_t last_step) {
  ++count_;
  if (most_ >= 0) restarts_.push_back({reason, last_step});
  step_ = last_step;
}

void RestartBudget::correct(const std::string& reason) {
  if (!restarts_.empty()) restarts_.back().reason = reason;
}

std::string RestartBudget::number() const {
  return most_ > 0 ? fmt::format(" (restart {} of {})", count_, most_) : "";
}

// The first cause first; of many only the first and the last.
std::string RestartBudget::spent_words() const {
  if (!is_spent_) return "";
  constexpr size_t kMostShown = 3;
  std::string before;
  for (size_t i = 0; i < restarts_.size(); ++i) {
    const bool is_left_out = restarts_.size() > kMostShown && i > 0 && i + 1 < restarts_.size();
    if (is_left_out && i > 1) continue;
    before += i == 0 ? "" : ", then ";
    before += is_left_out ? fmt::format("{} more", restarts_.size() - 2)
                          : fmt::format("{} at step {}", restarts_[i].reason, restarts_[i].step);
  }
  return fmt::format("; launch.max_restarts={} is used up (before: {})", most_, before);
}

}  // namespace weft
