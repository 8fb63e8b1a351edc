// launch/job_recovery.cpp: a rank dies or hangs, the others park, and all go on from a step that
// the snapshots of all hold, or from storage (docs/design/0015-survive.md).
#include <sys/wait.h>

#include <utility>

#include "base/error.h"
#include "base/log.h"
#include "launch/job_supervisor.h"
#include "launch/process_stack.h"

namespace weft {

// Whether the budget allows one more; progress restores it.
bool JobSupervisor::may_recover() {
  if (options_.max_restarts == 0 || kill_at_ || is_cut_off_ || is_early_) return false;
  return budget_.allows(ranks_.world().last_step());
}

void JobSupervisor::begin_recovery(int rank, const std::string& reason) {
  ranks_.world().note_death(monotonic_ms());
  ranks_.world().abort(reason);
  budget_.count(reason, ranks_.world().last_step());
  const int64_t park_ms = rank < 0 ? options_.hung_park_ms : options_.park_ms;
  recovery_ = {rank, reason, Clock::now(), park_ms};
  watch_.begin_parking();
  last_reason_ = reason;
  show_status(true);
}

// A rank has waited too long for another, aborted the world, and parked.
void JobSupervisor::look_for_hang() {
  if (recovery_ || kill_at_ || options_.max_restarts == 0 || !ranks_.world().is_aborted()) return;
  bool is_any_parked = false;
  for (int r = 0; r < ranks_.size(); ++r) is_any_parked |= ranks_.world().is_parked(r);
  if (!is_any_parked) return;
  if (may_recover()) return begin_recovery(-1, ranks_.world().abort_reason());
  ranks_.world().set_recovers(false);  // they end, and are judged
}

// One that no collective has found.
void JobSupervisor::handle_hang(int rank) {
  const std::string reason = watch_.describe_hang(rank);
  if (may_recover()) return begin_recovery(-1, reason);
  cause_ = rank;
  is_missed_ = true;
  report_hung(rank);
  begin_end(reason);
}

void JobSupervisor::report_hung(int rank) {
  // One that has failed is only slow to end, as with a GPU that does not answer.
  if (!ranks_.world().failure(rank)) {
    const std::string last = watch_.describe_last(rank);
    hung_[rank] = describe_hung(rank, last);
    report("hung", rank, last + "\n" + process_stack(ranks_[rank].pid));
  }
  ranks_.kill(rank);
}

// One that lives gets the time of a rank that does not hang.
bool JobSupervisor::is_late_to_park(int rank) const {
  const int64_t allowed = watch_.is_alive(rank) ? options_.park_ms : recovery_->park_ms;
  return Clock::now() >= recovery_->began + std::chrono::milliseconds(allowed);
}

bool JobSupervisor::has_parked_or_ended() {
  bool is_quiet = true;
  for (int r = 0; r < ranks_.size(); ++r) {
    if (!ranks_[r].is_running || ranks_.world().is_parked(r)) continue;
    is_quiet = false;
    if (ranks_[r].was_killed || !is_late_to_park(r)) continue;
    if (recovery_->rank < 0) recovery_->rank = r;
    report_hung(r);
  }
  return is_quiet;
}

void JobSupervisor::advance_recovery() {
  // It finished alone, whatever became of the others.
  if (!ranks_[0].is_running && is_well(end_of(0))) {
    recovery_.reset();
    return ranks_.kill_all();
  }
  if (!has_parked_or_ended()) return;
  const bool can_read = ranks_.slots() && ranks_.world().memory_fault().empty();
  const std::optional<int64_t> step = can_read ? ranks_.slots()->newest_common() : std::nullopt;
  if (!step && ranks_.is_any_running()) return ranks_.kill_all();
  continue_from(step);
}

// Those whom a signal has killed, and those we have because they hung.
std::vector<DeadRank> JobSupervisor::others_than(int rank, const std::vector<int>& dead) const {
  std::vector<DeadRank> others;
  for (const int r : dead) {
    if (r == rank) continue;
    if (hung_.contains(r))
      others.push_back({r, 0});
    else if (!ranks_[r].was_killed && WIFSIGNALED(ranks_[r].status))
      others.push_back({r, WTERMSIG(ranks_[r].status)});
  }
  return others;
}

// Every rank is parked or dead: nobody else touches the world, the slots or the run's files.
void JobSupervisor::continue_from(std::optional<int64_t> step) {
  std::vector<int> dead;
  for (int r = 0; r < ranks_.size(); ++r) {
    if (!ranks_[r].is_running) dead.push_back(r);
  }
  Recovery recovery = *std::exchange(recovery_, std::nullopt);
  const std::vector<DeadRank> others = others_than(recovery.rank, dead);
  // What those said who waited for it has only shown that a rank hangs.
  if (hung_.contains(recovery.rank)) recovery.reason = hung_[recovery.rank];
  recovery.reason += describe_others(others);
  hung_.clear();
  last_reason_ = recovery.reason;
  budget_.correct(recovery.reason);
  log_warning("{}; continuing from {}{}", recovery.reason,
              step ? fmt::format("step {}", *step) : options_.saved_words(), budget_.number());
  const std::string fault = ranks_.world().memory_fault();
  if (!fault.empty()) report("recovery_failed", -1, fault);
  if (fault.empty() || recovery.rank >= 0) {
    for (const DeadRank& other : others) report("died_too", other.rank, "");
    report("died", recovery.rank, recovery.reason);
  }
  budget_.continue_from(step.value_or(ranks_.world().last_step()));
  if (!step && ranks_.slots()) ranks_.slots()->drop_all();
  ranks_.world().reset(dead, step.value_or(-1));
  for (const int r : dead) start(r);
  report("continued", -1, step ? std::to_string(*step) : "storage");
}

}  // namespace weft
