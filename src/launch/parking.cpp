// launch/parking.cpp: who is late.
#include "launch/parking.h"

#include "launch/process_stack.h"

namespace weft {

Parking::Parking(const JobOptions& options, LocalRanks& ranks, ReportHung report_hung)
    : options_(options),
      ranks_(ranks),
      report_hung_(std::move(report_hung)),
      watch_(options, ranks) {}

void Parking::look() {
  if (has_begun()) return;
  if (ranks_.world().is_aborted()) return begin(ranks_.world().abort_reason());
  const auto hung = watch_.find_hung(false);
  if (!hung) return;
  begin(watch_.describe_hang(*hung));
  hurry(true);
  has_found_ = true;
}

void Parking::begin(const std::string& reason) {
  if (has_begun()) return;
  ranks_.world().note_death(monotonic_ms());
  ranks_.world().abort(reason);
  began_ = Clock::now();
  watch_.begin_parking();
}

void Parking::end() {
  began_.reset();
  is_hurried_ = has_found_ = false;
  static_cast<void>(watch_.find_hung(true));  // what it has seen of earlier processes
}

// It has nothing to complete, and may be connecting to a rank that is gone, which nothing ends: a
// new process is faster.
bool Parking::is_new(int rank) const {
  const Phase phase = ranks_.world().heartbeat(rank).read().phase;
  return phase == Phase::kStarting || phase == Phase::kRecovering;
}

// A rank whose heartbeat still changes gets the time of one that does not hang. Rank 0 that
// finishes the run needs nobody and does not park: it ends.
bool Parking::is_late(int rank) const {
  if (ranks_.number(rank) == 0 && ranks_.world().is_finishing()) return false;
  const bool is_hung = is_hurried_ && !watch_.is_alive(rank);
  const int64_t allowed = is_new(rank) ? options_.new_park_ms
                          : is_hung    ? options_.hung_park_ms
                                       : options_.park_ms;
  return Clock::now() >= *began_ + std::chrono::milliseconds(allowed);
}

// Not reported: one that has failed is only slow to end, and one that waits for a dead rank while
// it starts has done nothing wrong.
void Parking::kill(int rank) {
  if (!ranks_.world().failure(rank) && (is_hurried_ || !is_new(rank)))
    report_hung_(rank, watch_.describe_last(rank) + "\n" + process_stack(ranks_[rank].pid),
                 is_hurried_ || has_found_);
  ranks_.kill(rank);
}

bool Parking::is_quiet() {
  bool is_quiet = true;
  for (int r = 0; r < ranks_.size(); ++r) {
    if (!ranks_[r].is_running || ranks_.world().is_parked(r)) continue;
    is_quiet = false;
    if (ranks_[r].was_killed || !is_late(r)) continue;
    kill(r);
    return false;  // reading a stack may take seconds, and the supervisor waits for beats
  }
  return is_quiet;
}

}  // namespace weft
