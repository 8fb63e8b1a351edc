// launch/job.cpp: the supervisor's loop: signals, ends and status.
#include "launch/job.h"

#include <poll.h>
#include <sys/wait.h>

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "base/log.h"
#include "launch/job_supervisor.h"

namespace weft {
namespace {

constexpr int64_t kStatusMs = 1000;
constexpr int kJobPollMs = 200;    // also without a signal, in case one was lost
constexpr int kRecoverPollMs = 2;  // while ranks park, which nothing signals

}  // namespace

void JobSupervisor::start(int rank) {
  ranks_.start(rank);
  report("started", rank, fmt::format("process {}", ranks_[rank].pid));
}

int JobSupervisor::run() {
  ranks_.world().set_recovers(options_.max_restarts != 0);
  for (int r = 0; r < ranks_.size(); ++r) start(r);
  while (ranks_.is_any_running() || recovery_) {
    wait();
    handle_signals();
    reap();
    look_for_hang();
    if (const auto hung = watch_.find_hung(recovery_ || kill_at_)) handle_hang(*hung);
    if (const auto stuck = ranks_.find_unkillable()) return give_up(*stuck);
    if (recovery_) advance_recovery();
    if (kill_at_ && Clock::now() >= *kill_at_) kill_rest();
    show_status();
  }
  ranks_.finish_output();
  report_cause();
  if (was_cut_off()) report("cut_off", -1, kCutOffWords);
  show_status(true);
  return exit_code();
}

// The system does not let go of it: nobody may touch what it may still be writing to.
int JobSupervisor::give_up(int rank) {
  const std::string words = ranks_.describe_unkillable(rank);
  log_error("{}", words);
  if (!std::exchange(is_reported_, true)) report("failed", rank, words);
  show_status(true);
  return kPeerExit;
}

// Until a signal arrives, a rank prints, or it is time to act.
void JobSupervisor::wait() {
  std::vector<int> descriptors = {signals_.fd()};
  ranks_.add_descriptors(&descriptors);
  std::vector<pollfd> wanted;
  for (const int fd : descriptors) wanted.push_back({fd, POLLIN, 0});
  int64_t timeout_ms = recovery_ ? kRecoverPollMs : kJobPollMs;
  if (kill_at_) {
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(*kill_at_ - Clock::now());
    timeout_ms = std::clamp<int64_t>(left.count() + 1, 0, timeout_ms);
  }
  ::poll(wanted.data(), wanted.size(), static_cast<int>(timeout_ms));
  ranks_.pump();
}

void JobSupervisor::handle_signals() {
  for (const ArrivedSignal& signal : signals_.take()) {
    if (signal.number != SIGCHLD) stop_ranks(signal);
  }
}

// Only SIGINT and SIGTERM count, and not the echo of the first (base/stop.h).
bool JobSupervisor::is_second(const ArrivedSignal& signal) {
  if (!is_urgent(signal.number)) return false;
  if (!first_urgent_ms_) first_urgent_ms_ = signal.at_ms;
  return signal.at_ms - *first_urgent_ms_ > kSameSignalMs;
}

void JobSupervisor::stop_ranks(const ArrivedSignal& arrived) {
  const int signal = arrived.number;
  if (is_second(arrived)) {
    if (!std::exchange(is_cut_off_, true))
      log_error("a second signal, {}: killing the ranks; unsaved progress is lost",
                describe_signal(signal));
    recovery_.reset();
    ranks_.kill_all();
  }
  if (stop_signal_ != 0) return;
  stop_signal_ = signal;
  report("stopping", -1, describe_signal(signal));
  is_early_ = !ranks_.world().request_stop(signal);
  write_signal_line(signal, is_early_ ? options_.early_words : options_.noted_words);
  if (!is_early_) return;
  recovery_.reset();
  ranks_.kill_all();
}

void JobSupervisor::reap() {
  const std::vector<int> ended = ranks_.reap();
  for (const int r : ended) {
    if (is_well(end_of(r))) ranks_.world().note_ended(r);
    report(ranks_[r].was_killed ? "killed" : "ended", r, describe_end(r));
  }
  if (!ended.empty()) judge(ended);
}

// Among ranks that ended together, one that failed by itself comes before one that lost peers.
void JobSupervisor::judge(const std::vector<int>& ended) {
  const auto find = [&](End kind) -> std::optional<int> {
    for (const int r : ended) {
      if (!ranks_[r].was_killed && end_of(r) == kind) return r;
    }
    return std::nullopt;
  };
  std::optional<int> failed = find(End::kFailed);
  const auto killed = find(End::kKilled), lost = find(End::kLostPeers);
  if (recovery_ && !failed) return;  // one more to replace
  if (const auto dead = killed ? killed : lost; dead && !failed) {
    if (*dead != 0 && ranks_.world().is_finishing()) return;
    if (may_recover()) return begin_recovery(*dead, describe_end(*dead));
  }
  if (!failed) failed = killed;
  if (failed && !is_reported_) {
    cause_ = failed;
    report_cause();
  } else if (lost && !cause_ && !kill_at_) {
    cause_ = lost;  // reported when no other fails or is found to hang within the grace period
    is_missed_ = ranks_.world().has_waited();
  }
  if (cause_ && !kill_at_) begin_end(describe_end(*cause_));
}

void JobSupervisor::begin_end(const std::string& reason) {
  recovery_.reset();
  ranks_.world().set_recovers(false);
  ranks_.world().abort(reason);
  const int64_t park_ms = is_missed_ ? options_.hung_park_ms : 0;
  kill_at_ = Clock::now() + std::chrono::milliseconds(std::max(options_.grace_ms, park_ms));
}

// Where no rank has died or failed, one that hangs is the cause; those that waited for it have
// only noticed. One that a signal has stopped is to blame before those that are only silent.
void JobSupervisor::kill_rest() {
  std::optional<int> hung;
  bool is_stopped = false;
  for (int r = 0; r < ranks_.size() && cause_ && !is_reported_ && is_missed_; ++r) {
    if (!watch_.is_hanging(r, is_missed_)) continue;
    const bool is_this_stopped = is_stopped_by_signal(ranks_[r].pid);
    report_hung(r);
    if (hung && (is_stopped || !is_this_stopped)) continue;
    hung = r;
    is_stopped = is_this_stopped;
  }
  if (hung && !hung_.contains(*cause_)) cause_ = hung;
  ranks_.kill_all();
}

std::string JobSupervisor::describe_end(int rank) const {
  const auto hung = hung_.find(rank);
  return hung != hung_.end() ? hung->second : weft::describe_end(ranks_, rank, stop_signal_);
}

void JobSupervisor::report_cause() {
  if (!cause_ || is_reported_) return;
  is_reported_ = true;
  const bool would_repeat = !hung_.contains(*cause_) && end_of(*cause_) == End::kFailed;
  const std::string spent = would_repeat ? "" : budget_.spent_words(),
                    words = describe_end(*cause_);
  const std::string said =
      hung_.contains(*cause_) ? words : report_end(ranks_, *cause_, stop_signal_);
  log_error("{}", add_before_hint(said, spent));
  report("failed", *cause_, words + spent);
}

// ------------------------------------------------------------------ status

void JobSupervisor::show_status(bool has_changed) {
  if (!options_.on_status) return;
  const int64_t now = monotonic_ms();
  if (!has_changed && now - shown_ms_ < kStatusMs) return;
  shown_ms_ = now;
  options_.on_status(status());
}

JobStatus JobSupervisor::status() const {
  JobStatus s;
  s.cause = last_reason_;
  s.num_restarts = budget_.used(ranks_.world().last_step());
  s.max_restarts = options_.max_restarts;
  const bool is_back = watch_.read_ranks(&s);
  if (recovery_ || (s.generation > 0 && !is_back)) s.state = "recovering";
  if (stop_signal_ != 0) s.state = "stopping";
  if (kill_at_) s.state = "failing";
  return s;
}

// ------------------------------------------------------------------ ends

// Whether ranks were killed by a second signal, with something to save.
bool JobSupervisor::was_cut_off() const {
  if (cause_ || is_early_ || !is_cut_off_) return false;
  for (int r = 0; r < ranks_.size(); ++r) {
    if (ranks_[r].was_killed && WIFSIGNALED(ranks_[r].status)) return true;
  }
  return false;
}

int JobSupervisor::exit_code() const {
  if (cause_) {
    const int status = ranks_[*cause_].status;
    return hung_.contains(*cause_) || WIFSIGNALED(status) ? kPeerExit : WEXITSTATUS(status);
  }
  if (was_cut_off()) return 1;
  for (int r = 0; r < ranks_.size() && is_early_; ++r) {
    if (ranks_[r].was_killed && WIFSIGNALED(ranks_[r].status)) return 128 + stop_signal_;
  }
  for (int r = 0; r < ranks_.size(); ++r) {
    if (end_of(r) == End::kStopped) return 128 + stop_signal_;
  }
  return 0;  // also where a signal arrived too late to stop anything
}

int run_local_job(const JobOptions& options, const EventSink& sink) {
  return JobSupervisor(options, sink).run();
}

}  // namespace weft
