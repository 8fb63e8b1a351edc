// launch/rank_watch.h: the heartbeats of a job's ranks, and those that hang.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "launch/hang_watch.h"
#include "launch/local_ranks.h"

namespace weft {

class RankWatch {
 public:
  RankWatch(const JobOptions& options, LocalRanks& ranks)
      : options_(options), ranks_(ranks), watch_(options.num_ranks) {}

  // A rank that hangs and that no collective has found. is_idle: the job ends or recovers, and
  // nobody is expected to make progress.
  std::optional<int> find_hung(bool is_idle);
  // What the rank did last: its phase, its step, its last collective.
  std::string describe_last(int rank) const;
  // "rank 1 has made no progress for 37.5 s (...)"
  std::string describe_hang(int rank) const;
  // Whether the rank hangs, where the others have lost a peer and it has not ended. is_missed: a
  // rank has waited for it, so that no phase is an excuse.
  bool is_hanging(int rank, bool is_missed) const;
  // What the ranks say, for a status; whether all of them train.
  bool read_ranks(JobStatus* status) const;
  // Ranks are asked to park. Whether one has done something since: it does not hang, and only
  // completes what it is computing or writing.
  void begin_parking();
  bool is_alive(int rank) const;

 private:
  const JobOptions& options_;
  LocalRanks& ranks_;
  HangWatch watch_;
  int64_t looked_ms_ = 0;         // when
  std::vector<uint64_t> counts_;  // of signs, when ranks were asked to park
};

}  // namespace weft
