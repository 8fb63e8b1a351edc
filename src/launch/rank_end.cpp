// launch/rank_end.cpp: exit codes and signals in words.
#include "launch/rank_end.h"

#include <fmt/core.h>
#include <sys/wait.h>

#include <algorithm>
#include <cstring>

namespace weft {

End end_of(int status, int stop_signal) {
  if (WIFSIGNALED(status)) return End::kKilled;
  const int code = WEXITSTATUS(status);
  if (code == 0) return End::kDone;
  if (stop_signal != 0 && code == 128 + stop_signal) return End::kStopped;
  return code == kPeerExit ? End::kLostPeers : End::kFailed;
}

bool is_well(End end) { return end == End::kDone || end == End::kStopped; }

std::string describe_signal(int number) {
  const char* name = ::sigabbrev_np(number);
  return name != nullptr ? fmt::format("SIG{}", name) : fmt::format("signal {}", number);
}

std::string describe_others(const std::vector<DeadRank>& others) {
  constexpr size_t kMostNamed = 8;
  std::string text;
  for (size_t i = 0; i < std::min(others.size(), kMostNamed); ++i)
    text += fmt::format("{}rank {} ({})", i == 0 ? "; also killed: " : ", ", others[i].rank,
                        describe_signal(others[i].signal));
  if (others.size() > kMostNamed) text += fmt::format(" and {} more", others.size() - kMostNamed);
  return text;
}

namespace {

std::string words_of(const LocalRanks& ranks, int r) {
  std::string words = ranks.world().failure(r).value_or("");
  if (words.empty() && ranks[r].err) words = ranks[r].err->last_line();
  return words;
}

}  // namespace

std::string report_end(const LocalRanks& ranks, int r, int stop_signal) {
  const int status = ranks[r].status;
  if (WIFEXITED(status) && WEXITSTATUS(status) == kUserExit) {
    if (std::string words = words_of(ranks, r); !words.empty()) return words;
  }
  return describe_end(ranks, r, stop_signal);
}

std::string describe_end(const LocalRanks& ranks, int r, int stop_signal) {
  const LocalRanks::Process& rank = ranks[r];
  std::string text =
      WIFSIGNALED(rank.status)
          ? fmt::format("rank {} was killed by {}", r, describe_signal(WTERMSIG(rank.status)))
          : fmt::format("rank {} ended with exit code {}", r, WEXITSTATUS(rank.status));
  const std::string words = words_of(ranks, r);
  if (!words.empty() && !is_well(end_of(rank.status, stop_signal))) text += ": " + words;
  return text;
}

}  // namespace weft
