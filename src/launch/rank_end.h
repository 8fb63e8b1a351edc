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
// "rank 1 hung (update, step 12; last collective: ...) and was killed".
std::string describe_hung(int rank, const std::string& last);
// "; also killed: rank 0 (SIGKILL), rank 2 (hung)": those that died with another one; "": none.
struct DeadRank {
  int rank, signal;  // 0: it hung
};
std::string describe_others(const std::vector<DeadRank>& others);
// What a rank said, on one line and without its hint: for events and the status.
std::string one_line(const std::string& words);
// For people: more, such as what is said about restarts, goes before the hint.
std::string add_before_hint(const std::string& words, const std::string& more);
// "rank 1 was killed by SIGKILL", and its own words where it had some, as one_line().
std::string describe_end(const LocalRanks& ranks, int rank, int stop_signal);
// The same for people, with the hint. Wrong input is not the rank's fault, so it has its words
// alone, as a process without ranks says them.
std::string report_end(const LocalRanks& ranks, int rank, int stop_signal);

}  // namespace weft
