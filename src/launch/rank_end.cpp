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

std::string describe_hung(int rank, const std::string& last) {
  return fmt::format("rank {} hung ({}) and was killed", rank, last);
}

std::string describe_others(const std::vector<DeadRank>& others) {
  constexpr size_t kMostNamed = 8;
  std::string text;
  for (size_t i = 0; i < std::min(others.size(), kMostNamed); ++i)
    text += fmt::format("{}rank {} ({})", i == 0 ? "; also killed: " : ", ", others[i].rank,
                        others[i].signal == 0 ? "hung" : describe_signal(others[i].signal));
  if (others.size() > kMostNamed) text += fmt::format(" and {} more", others.size() - kMostNamed);
  return text;
}

namespace {

constexpr const char* kHint = "\n  hint: ";  // as a process says it (cmd/main.cpp)

}  // namespace

std::string one_line(const std::string& words) {
  std::string line;
  bool is_indented = false;
  for (const char c : words.substr(0, words.find(kHint))) {
    if (is_indented && c == ' ') continue;
    is_indented = c == '\n';
    line += is_indented ? ' ' : c;
  }
  return line;
}

std::string add_before_hint(const std::string& words, const std::string& more) {
  std::string text = words;
  return text.insert(std::min(text.find(kHint), text.size()), more);
}

namespace {

std::string words_of(const LocalRanks& ranks, int r) {
  std::string words = ranks.world().failure(r).value_or("");
  if (words.empty() && ranks[r].err) words = ranks[r].err->last_line();
  return words;
}

std::string end_with_words(const LocalRanks& ranks, int r, int stop_signal) {
  const LocalRanks::Process& rank = ranks[r];
  std::string text =
      WIFSIGNALED(rank.status)
          ? fmt::format("rank {} was killed by {}", r, describe_signal(WTERMSIG(rank.status)))
          : fmt::format("rank {} ended with exit code {}", r, WEXITSTATUS(rank.status));
  const std::string words = words_of(ranks, r);
  if (!words.empty() && !is_well(end_of(rank.status, stop_signal))) text += ": " + words;
  return text;
}

}  // namespace

std::string describe_end(const LocalRanks& ranks, int r, int stop_signal) {
  return one_line(end_with_words(ranks, r, stop_signal));
}

std::string report_end(const LocalRanks& ranks, int r, int stop_signal) {
  const int status = ranks[r].status;
  if (WIFEXITED(status) && WEXITSTATUS(status) == kUserExit) {
    if (std::string words = words_of(ranks, r); !words.empty()) return words;
  }
  return end_with_words(ranks, r, stop_signal);
}

}  // namespace weft
