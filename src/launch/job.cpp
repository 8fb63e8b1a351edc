// launch/job.cpp: the supervisor's loop.
#include "launch/job.h"

#include <poll.h>
#include <sys/wait.h>

#include <algorithm>
#include <chrono>
#include <optional>
#include <utility>

#include "base/error.h"
#include "base/log.h"
#include "launch/local_ranks.h"
#include "launch/process_stack.h"
#include "launch/rank_end.h"
#include "launch/rank_watch.h"
#include "launch/signal_pipe.h"

namespace weft {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int64_t kStatusMs = 1000;
constexpr int kPollMs = 200;       // also without a signal, in case one was lost
constexpr int kRecoverPollMs = 2;  // while ranks park, of which nothing tells us

class Job {
 public:
  Job(const JobOptions& options, const EventSink& sink)
      : options_(options), sink_(sink), ranks_(options), watch_(options, ranks_) {}
  int run();

 private:
  void start(int rank);
  void wait();
  void handle_signals();
  bool is_second(const ArrivedSignal& signal);
  void stop_ranks(const ArrivedSignal& signal);
  void reap();
  void judge(const std::vector<int>& ended);
  void begin_end(const std::string& reason);
  void report_cause();
  End end_of(int rank) const { return weft::end_of(ranks_[rank].status, stop_signal_); }
  std::string describe_end(int rank) const {
    return weft::describe_end(ranks_, rank, stop_signal_);
  }
  int exit_code() const;
  void show_status(bool has_changed = false);
  JobStatus status() const;
  void tell(const char* event, int rank, const std::string& text) const {
    if (sink_) sink_(event, rank, text);
  }

  bool may_recover();
  void begin_recovery(int rank, const std::string& reason);
  void look_for_hang();
  void handle_hang(int rank);
  void tell_hung(int rank);  // and kills it
  void advance_recovery();
  bool is_late_to_park(int rank) const;
  bool has_parked_or_ended();
  void continue_from(std::optional<int64_t> step);

  const JobOptions& options_;
  const EventSink& sink_;
  SignalPipe signals_;
  LocalRanks ranks_;
  RankWatch watch_;
  int stop_signal_ = 0;                     // the first one received
  std::optional<int64_t> first_urgent_ms_;  // when the first SIGINT or SIGTERM arrived
  bool is_early_ = false;                   // it arrived when there was nothing to save
  std::optional<int> cause_;                // the rank that failed first
  bool is_reported_ = false;
  bool is_cut_off_ = false;  // a second stop signal arrived before all ranks had ended
  std::optional<Clock::time_point> kill_at_;  // set when the job must end

  struct Recovery {
    int rank;  // that died; -1: none has
    std::string reason;
    Clock::time_point began;
    int64_t park_ms;  // for ranks that have not noticed
  };
  std::optional<Recovery> recovery_;
  int64_t num_restarts_ = 0;    // of the budget
  int64_t restarted_step_ = 0;  // of the last one
  std::string last_reason_;     // likewise
  int64_t shown_ms_ = 0;        // when the status was
};

void Job::start(int rank) {
  ranks_.start(rank);
  tell("started", rank, fmt::format("process {}", ranks_[rank].pid));
}

int Job::run() {
  ranks_.world().set_recovers(options_.max_restarts != 0);
  for (int r = 0; r < ranks_.size(); ++r) start(r);
  while (ranks_.is_any_running() || recovery_) {
    wait();
    handle_signals();
    reap();
    look_for_hang();
    if (const auto hung = watch_.find_hung(recovery_ || kill_at_)) handle_hang(*hung);
    if (recovery_) advance_recovery();
    if (kill_at_ && Clock::now() >= *kill_at_) ranks_.kill_all();
    show_status();
  }
  ranks_.finish_output();
  report_cause();
  show_status(true);
  return exit_code();
}

// Until a signal arrives, a rank prints, or it is time to act.
void Job::wait() {
  std::vector<int> descriptors = {signals_.fd()};
  ranks_.add_descriptors(&descriptors);
  std::vector<pollfd> wanted;
  for (const int fd : descriptors) wanted.push_back({fd, POLLIN, 0});
  int64_t timeout_ms = recovery_ ? kRecoverPollMs : kPollMs;
  if (kill_at_) {
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(*kill_at_ - Clock::now());
    timeout_ms = std::clamp<int64_t>(left.count() + 1, 0, timeout_ms);
  }
  ::poll(wanted.data(), wanted.size(), static_cast<int>(timeout_ms));
  ranks_.pump();
}

void Job::handle_signals() {
  for (const ArrivedSignal& signal : signals_.take()) {
    if (signal.number != SIGCHLD) stop_ranks(signal);
  }
}

// Only SIGINT and SIGTERM count, and not the echo of the first (base/stop.h).
bool Job::is_second(const ArrivedSignal& signal) {
  if (!is_urgent(signal.number)) return false;
  if (!first_urgent_ms_) first_urgent_ms_ = signal.at_ms;
  return signal.at_ms - *first_urgent_ms_ > kSameSignalMs;
}

void Job::stop_ranks(const ArrivedSignal& arrived) {
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
  tell("stopping", -1, describe_signal(signal));
  is_early_ = !ranks_.world().request_stop(signal);
  write_signal_line(signal, is_early_ ? options_.early_words : options_.noted_words);
  if (!is_early_) return;
  recovery_.reset();
  ranks_.kill_all();
}

void Job::reap() {
  const std::vector<int> ended = ranks_.reap();
  for (const int r : ended) {
    if (is_well(end_of(r))) ranks_.world().note_ended(r);
    tell(ranks_[r].was_killed ? "killed" : "ended", r, describe_end(r));
  }
  if (!ended.empty()) judge(ended);
}

// Among ranks that ended together, one that failed by itself comes before one that lost peers.
void Job::judge(const std::vector<int>& ended) {
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
    cause_ = lost;  // reported when no other fails within the grace period
  }
  if (cause_ && !kill_at_) begin_end(describe_end(*cause_));
}

void Job::begin_end(const std::string& reason) {
  recovery_.reset();
  ranks_.world().set_recovers(false);
  ranks_.world().abort(reason);
  kill_at_ = Clock::now() + std::chrono::milliseconds(options_.grace_ms);
}

void Job::report_cause() {
  if (!cause_ || is_reported_) return;
  is_reported_ = true;
  log_error("{}", report_end(ranks_, *cause_, stop_signal_));
  tell("failed", *cause_, describe_end(*cause_));
}

// ------------------------------------------------------------------ recovery

// Whether the budget allows one more; progress restores it.
bool Job::may_recover() {
  if (options_.max_restarts == 0 || kill_at_ || is_cut_off_ || is_early_) return false;
  const int64_t good_steps = ranks_.world().last_step() - restarted_step_;
  if (options_.restart_reset_steps > 0 && good_steps >= options_.restart_reset_steps)
    num_restarts_ = 0;
  return options_.max_restarts < 0 || num_restarts_ < options_.max_restarts;
}

void Job::begin_recovery(int rank, const std::string& reason) {
  ranks_.world().note_death(monotonic_ms());
  ranks_.world().abort(reason);
  ++num_restarts_;
  const int64_t park_ms = rank < 0 ? options_.hung_park_ms : options_.park_ms;
  recovery_ = {rank, reason, Clock::now(), park_ms};
  watch_.begin_parking();
  last_reason_ = reason;
  show_status(true);
}

// A rank has waited too long for another, aborted the world, and parked.
void Job::look_for_hang() {
  if (recovery_ || kill_at_ || options_.max_restarts == 0 || !ranks_.world().is_aborted()) return;
  bool is_any_parked = false;
  for (int r = 0; r < ranks_.size(); ++r) is_any_parked |= ranks_.world().is_parked(r);
  if (!is_any_parked) return;
  if (may_recover()) return begin_recovery(-1, ranks_.world().abort_reason());
  ranks_.world().set_recovers(false);  // they end, and are judged
}

// One that no collective has found.
void Job::handle_hang(int rank) {
  const std::string reason = watch_.describe_hang(rank);
  if (may_recover()) return begin_recovery(-1, reason);
  cause_ = rank;
  tell_hung(rank);
  ranks_.world().note_failure(rank, reason);
  begin_end(reason);
}

void Job::tell_hung(int rank) {
  // One that has failed is only slow to end, as with a GPU that does not answer.
  if (!ranks_.world().failure(rank))
    tell("hung", rank, watch_.describe_last(rank) + "\n" + process_stack(ranks_[rank].pid));
  ranks_.kill(rank);
}

// One that lives gets the time of a rank that does not hang.
bool Job::is_late_to_park(int rank) const {
  const int64_t allowed = watch_.is_alive(rank) ? options_.park_ms : recovery_->park_ms;
  return Clock::now() >= recovery_->began + std::chrono::milliseconds(allowed);
}

bool Job::has_parked_or_ended() {
  bool is_quiet = true;
  for (int r = 0; r < ranks_.size(); ++r) {
    if (!ranks_[r].is_running || ranks_.world().is_parked(r)) continue;
    is_quiet = false;
    if (ranks_[r].was_killed || !is_late_to_park(r)) continue;
    if (recovery_->rank < 0) recovery_->rank = r;
    tell_hung(r);
  }
  return is_quiet;
}

void Job::advance_recovery() {
  // It finished alone, whatever became of the others.
  if (!ranks_[0].is_running && is_well(end_of(0))) {
    recovery_.reset();
    return ranks_.kill_all();
  }
  if (!has_parked_or_ended()) return;
  const std::optional<int64_t> step =
      ranks_.slots() ? ranks_.slots()->newest_common() : std::nullopt;
  if (!step && ranks_.is_any_running()) return ranks_.kill_all();
  continue_from(step);
}

// Every rank is parked or dead: nobody else touches the world, the slots or the run's files.
void Job::continue_from(std::optional<int64_t> step) {
  std::vector<int> dead;
  for (int r = 0; r < ranks_.size(); ++r) {
    if (!ranks_[r].is_running) dead.push_back(r);
  }
  const Recovery recovery = *std::exchange(recovery_, std::nullopt);
  log_warning("{}; continuing from {}{}", recovery.reason,
              step ? fmt::format("step {}", *step) : "storage",
              options_.max_restarts > 0
                  ? fmt::format(" (restart {} of {})", num_restarts_, options_.max_restarts)
                  : "");
  tell("died", recovery.rank, recovery.reason);
  restarted_step_ = step.value_or(ranks_.world().last_step());
  if (!step && ranks_.slots()) ranks_.slots()->drop_all();
  ranks_.world().reset(dead, step.value_or(-1));
  for (const int r : dead) start(r);
  tell("continued", -1, step ? std::to_string(*step) : "storage");
}

// ------------------------------------------------------------------ status

void Job::show_status(bool has_changed) {
  if (!options_.on_status) return;
  const int64_t now = monotonic_ms();
  if (!has_changed && now - shown_ms_ < kStatusMs) return;
  shown_ms_ = now;
  options_.on_status(status());
}

JobStatus Job::status() const {
  JobStatus s;
  s.cause = last_reason_;
  s.num_restarts = num_restarts_;
  s.max_restarts = options_.max_restarts;
  const bool is_back = watch_.read_ranks(&s);
  if (recovery_ || (s.generation > 0 && !is_back)) s.state = "recovering";
  if (stop_signal_ != 0) s.state = "stopping";
  if (kill_at_) s.state = "failing";
  return s;
}

// ------------------------------------------------------------------ ends

int Job::exit_code() const {
  if (cause_) {
    const int status = ranks_[*cause_].status;
    return WIFSIGNALED(status) ? kPeerExit : WEXITSTATUS(status);
  }
  for (int r = 0; r < ranks_.size(); ++r) {
    if (!ranks_[r].was_killed || !WIFSIGNALED(ranks_[r].status)) continue;
    if (is_early_) return 128 + stop_signal_;
    if (is_cut_off_) return 1;
  }
  for (int r = 0; r < ranks_.size(); ++r) {
    if (end_of(r) == End::kStopped) return 128 + stop_signal_;
  }
  return 0;  // also where a signal arrived too late to stop anything
}

}  // namespace

int run_local_job(const JobOptions& options, const EventSink& sink) {
  return Job(options, sink).run();
}

}  // namespace weft
