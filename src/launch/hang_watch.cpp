// launch/hang_watch.cpp: how long is too long, and whose fault it is.
#include "launch/hang_watch.h"

#include <fmt/core.h>

#include <algorithm>

#include "base/process_stat.h"

namespace weft {

void HangWatch::look(int r, const std::optional<RankSign>& sign, int64_t elapsed_ms) {
  constexpr int64_t kMostMs = 1000;
  Rank& rank = ranks_[static_cast<size_t>(r)];
  if (!sign) {
    rank = {};
    return;
  }
  const bool is_same = rank.sign && rank.sign->count == sign->count;
  const int64_t passed = std::clamp<int64_t>(elapsed_ms, 0, kMostMs);
  rank.still_ms = is_same ? rank.still_ms + passed : 0;
  rank.busy_ms = is_same && !sign->is_waiting ? rank.busy_ms + passed : 0;
  rank.sign = sign;
}

// Before the first step has ended ten times as much, as on a GPU (train/hang_rule.h): graphs are
// captured, algorithms are measured.
int64_t HangWatch::allowed_ms(const Rank& rank, int64_t hang_ms) {
  const int64_t allowed = hang_ms + hang_ms / 4;
  return rank.sign->has_stepped ? allowed : kFirstTimes * allowed;
}

std::optional<int> HangWatch::find(int64_t hang_ms, const IsStopped& is_stopped) const {
  std::optional<int> found;
  for (size_t i = 0; i < ranks_.size(); ++i) {
    const Rank& rank = ranks_[i];
    const int number = static_cast<int>(i);
    if (!rank.sign) continue;
    const int64_t allowed = allowed_ms(rank, hang_ms);
    const bool is_late = has_bound(rank.sign->phase) && rank.busy_ms >= allowed;
    if (!is_late && (rank.still_ms < allowed || !is_stopped(number))) continue;
    if (!found || rank.still_ms > still_ms(*found)) found = number;
  }
  return found;
}

std::string describe_sign(const RankSign& sign) {
  return fmt::format("{}, step {}", phase_name(sign.phase), sign.step);
}

bool is_stopped_by_signal(int pid) {
  const auto stat = read_process_stat(pid);
  return stat && stat->state == 'T';
}

}  // namespace weft
