// launch/hang_watch.h: finds ranks that make no progress, from their heartbeats.
//
// Collectives find most hangs themselves: a rank waits for another until its deadline (hang_ms).
// What they cannot find is left to the supervisor: ranks that hang together, and a hang while
// others wait without a deadline. It decides a quarter later, so that a collective, which knows who
// waited for whom, comes first.
//
// Time is what the watch has seen pass between its looks, each of which counts for a second at
// most: where the whole machine stood still, no rank is blamed for it.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "net/heartbeat.h"

namespace weft {

class HangWatch {
 public:
  using IsStopped = std::function<bool(int rank)>;  // by a signal; asked only where it matters

  static constexpr int64_t kFirstTimes = 10;  // before the first step has ended

  explicit HangWatch(int num_ranks) : ranks_(static_cast<size_t>(num_ranks)) {}

  // At now_ms the rank showed this sign; none: it has ended or waits to be replaced.
  void look(int rank, const std::optional<RankSign>& sign, int64_t elapsed_ms);
  // The rank that has made no progress for the longest time, where that is too long.
  std::optional<int> find(int64_t hang_ms, const IsStopped& is_stopped) const;
  // How long, at the last look.
  int64_t still_ms(int rank) const { return ranks_[static_cast<size_t>(rank)].still_ms; }
  void forget() { ranks_.assign(ranks_.size(), {}); }

 private:
  struct Rank {
    std::optional<RankSign> sign;
    int64_t still_ms = 0;  // without a new sign
    int64_t busy_ms = 0;   // the same, without waiting for another rank
  };
  static int64_t allowed_ms(const Rank& rank, int64_t hang_ms);
  std::vector<Rank> ranks_;
};

// "forward and backward, step 12"
std::string describe_sign(const RankSign& sign);
// Whether a signal has stopped the process (SIGSTOP), as the system says.
bool is_stopped_by_signal(int pid);

}  // namespace weft
