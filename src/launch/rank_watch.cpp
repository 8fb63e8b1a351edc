// launch/rank_watch.cpp: reads heartbeats, and puts them into words.
#include "launch/rank_watch.h"

#include <fmt/core.h>

#include <utility>

namespace weft {

std::optional<int> RankWatch::find_hung(bool is_idle) {
  const int64_t now = monotonic_ms(), elapsed = now - std::exchange(looked_ms_, now);
  if (is_idle || !options_.watches_hangs || ranks_.world().is_aborted()) {
    watch_.forget();
    return std::nullopt;
  }
  for (int r = 0; r < ranks_.size(); ++r) {
    const bool is_there = ranks_[r].is_running && !ranks_[r].was_killed;
    watch_.look(r, is_there ? std::optional(ranks_.world().heartbeat(r).read()) : std::nullopt,
                elapsed);
  }
  return watch_.find(ranks_.world().hang_ms(),
                     [&](int r) { return is_stopped_by_signal(ranks_[r].pid); });
}

std::string RankWatch::describe_last(int rank) const {
  const RankSign sign = ranks_.world().heartbeat(rank).read();
  std::string text = describe_sign(sign);
  if (options_.describe_call)
    text += "; last collective: " + options_.describe_call(sign.last_call);
  if (is_stopped_by_signal(ranks_[rank].pid)) text += "; a signal has stopped it (SIGSTOP)";
  return text;
}

std::string RankWatch::describe_hang(int rank) const {
  return fmt::format("rank {} has made no progress for {:.1f} s ({})", ranks_.number(rank),
                     static_cast<double>(watch_.still_ms(rank)) / 1000, describe_last(rank));
}

// The others have waited for hang_ms; its own last sign may be a little younger. One that has
// noticed is parking, has failed, or at least is not asked what else it does. Where nobody is known
// to have waited the first step may take longer (HangWatch).
bool RankWatch::is_hanging(int rank, bool is_missed) const {
  const LocalRanks::Process& process = ranks_[rank];
  if (!process.is_running || process.was_killed || ranks_.world().failure(rank)) return false;
  if (is_stopped_by_signal(process.pid)) return true;
  const RankSign sign = ranks_.world().heartbeat(rank).read();
  if (!options_.watches_hangs || sign.is_waiting) return false;
  const int64_t times = is_missed || sign.has_stepped ? 1 : HangWatch::kFirstTimes;
  if (monotonic_ms() - sign.at_ms < times * ranks_.world().hang_ms() / 2) return false;
  const bool is_excused = sign.phase == Phase::kStarting || sign.phase == Phase::kParking;
  return has_bound(sign.phase) || (is_missed && !is_excused);
}

bool RankWatch::read_ranks(JobStatus* status) const {
  status->generation = ranks_.world().generation();
  status->is_opened = ranks_.world().is_opened();
  status->shared_bytes = ranks_.shared_bytes();
  bool do_all_train = true;
  for (int r = 0; r < ranks_.size(); ++r) {
    const RankSign sign = ranks_.world().heartbeat(r).read();
    status->ranks.push_back({ranks_[r].pid, ranks_[r].is_running, sign});
    do_all_train &= sign.phase != Phase::kStarting && sign.phase != Phase::kRecovering &&
                    sign.phase != Phase::kParking;
  }
  return do_all_train;
}

void RankWatch::begin_parking() {
  counts_.clear();
  for (int r = 0; r < ranks_.size(); ++r)
    counts_.push_back(ranks_.world().heartbeat(r).read().count);
}

bool RankWatch::is_alive(int rank) const {
  return ranks_.world().heartbeat(rank).read().count != counts_[static_cast<size_t>(rank)];
}

}  // namespace weft
