// launch/parking.h: the ranks of a node on their way to a standstill, after one of the run's was
// lost.
#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <string>

#include "launch/local_ranks.h"
#include "launch/rank_watch.h"

namespace weft {

class Parking {
 public:
  // report_hung: of a rank that is about to be killed; what it did last on the first line, its
  // stack; whether somebody hangs for certain, and not only since a rank was lost.
  using ReportHung = std::function<void(int rank, const std::string& text, bool is_first)>;
  // Both must outlive it.
  Parking(const JobOptions& options, LocalRanks& ranks, ReportHung report_hung);

  // Begins where the world was aborted, or where a rank hangs that no collective has found.
  void look();
  void begin(const std::string& reason);  // also aborts the world; does nothing where it has begun
  void hurry(bool is_hurried) { is_hurried_ = is_hurried; }  // nobody has died: one of them hangs
  bool has_begun() const { return began_.has_value(); }
  // Whether each rank is parked or has ended. Kills those that are late, one per call.
  bool is_quiet();
  void end();  // they run again

 private:
  using Clock = std::chrono::steady_clock;
  bool is_new(int rank) const;
  bool is_late(int rank) const;
  void kill(int rank);

  const JobOptions& options_;
  LocalRanks& ranks_;
  ReportHung report_hung_;
  RankWatch watch_;
  std::optional<Clock::time_point> began_;
  bool is_hurried_ = false;
  bool has_found_ = false;  // one that hangs, by its heartbeat
};

}  // namespace weft
