// launch/rank_end.h: what the end of a rank's process means.
#pragma once

#include <string>
#include <vector>

#include "launch/local_ranks.h"

namespace weft {

inline constexpr int kUserExit = 2, kPeerExit = 75;

enum class End { kDone, kStopped, kLostPeers, kKilled, kFailed };

// status: of waitpid. stop_signal: what all ranks were asked to stop on; 0: nothing.
End end_of(int status, int stop_signal);
bool is_well(End end);

std::string describe_signal(int number);  // "SIGKILL"
// "; also killed: rank 0 (SIGKILL), rank 2 (SIGSEGV)": those that died with another one; "": none.
struct DeadRank {
  int rank, signal;
};
std::string describe_others(const std::vector<DeadRank>& others);
// "rank 1 was killed by SIGKILL", and its own words where it had some.
std::string describe_end(const LocalRanks& ranks, int rank, int stop_signal);
// The same for people: wrong input is not the rank's fault, so it has its words alone, as a process
// without ranks says them.
std::string report_end(const LocalRanks& ranks, int rank, int stop_signal);

}  // namespace weft
