// launch/job_supervisor.h: the state of a supervisor of one machine's ranks (launch/job.h).
#pragma once

#include <chrono>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "launch/job.h"
#include "launch/local_ranks.h"
#include "launch/rank_end.h"
#include "launch/rank_watch.h"
#include "launch/restart_budget.h"
#include "launch/signal_pipe.h"

namespace weft {

class JobSupervisor {
 public:
  JobSupervisor(const JobOptions& options, const EventSink& sink)
      : options_(options),
        sink_(sink),
        ranks_(options),
        watch_(options, ranks_),
        budget_(options.max_restarts, options.restart_reset_steps) {}
  int run();

 private:
  using Clock = std::chrono::steady_clock;
  void start(int rank);
  void wait();
  void handle_signals();
  bool is_second(const ArrivedSignal& signal);
  void stop_ranks(const ArrivedSignal& signal);
  void reap();
  void judge(const std::vector<int>& ended);
  void begin_end(const std::string& reason);
  void kill_rest();
  void report_cause();
  End end_of(int rank) const { return weft::end_of(ranks_[rank].status, stop_signal_); }
  std::string describe_end(int rank) const;
  bool was_cut_off() const;
  int exit_code() const;
  int give_up(int rank);
  void show_status(bool has_changed = false);
  JobStatus status() const;
  void report(const char* event, int rank, const std::string& text) const {
    if (sink_) sink_(event, rank, text);
  }

  // Recovery (launch/job_recovery.cpp).
  struct Recovery {
    int rank;  // that died; -1: none has
    std::string reason;
    Clock::time_point began;
    int64_t park_ms;  // for ranks that have not noticed
  };
  bool may_recover();
  void begin_recovery(int rank, const std::string& reason);
  void look_for_hang();
  void handle_hang(int rank);
  void report_hung(int rank);  // and kills it
  void advance_recovery();
  bool is_late_to_park(int rank) const;
  bool has_parked_or_ended();
  std::vector<DeadRank> others_than(int rank, const std::vector<int>& dead) const;
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
  bool is_missed_ = false;                  // ranks have waited for one that hangs
  std::map<int, std::string> hung_;         // in words; those that were killed for it
  bool is_reported_ = false;
  bool is_cut_off_ = false;  // a second stop signal arrived before all ranks had ended
  std::optional<Clock::time_point> kill_at_;  // set when the job must end

  std::optional<Recovery> recovery_;
  RestartBudget budget_;
  std::string last_reason_;  // of a restart
  int64_t shown_ms_ = 0;     // when the status was
};

}  // namespace weft
