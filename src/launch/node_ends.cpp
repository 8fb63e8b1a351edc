// launch/node_ends.cpp: first cause first.
#include "launch/node_ends.h"

#include <fmt/core.h>

#include <algorithm>

#include "base/error.h"
#include "launch/rank_end.h"
#include "net/regroup.h"

namespace weft {

NodeEnds::NodeEnds(int num_nodes, int ranks_per_node) : ranks_per_node_(ranks_per_node) {
  begin(num_nodes);
}

void NodeEnds::begin(int num_nodes) {
  ranks_.assign(static_cast<size_t>(num_nodes) * static_cast<size_t>(ranks_per_node_), Rank{});
  lost_nodes_.clear();
  refusal_.reset();
  num_ended_ = 0;
}

void NodeEnds::note(const RankEnd& end, int stop_signal) {
  Rank& rank = ranks_.at(static_cast<size_t>(end.rank));
  if (rank.kind != Kind::kRunning) return;
  rank.end = end;
  rank.order = ++num_ended_;
  if (end.signal != 0)
    rank.kind = end.was_killed ? Kind::kKilledByUs : Kind::kDied;
  else if (end.exit_code == 0)
    rank.kind = Kind::kDone;
  else if (end.exit_code == kRegroupExit ||
           (stop_signal != 0 && end.exit_code == 128 + stop_signal))
    rank.kind = Kind::kStopped;
  else
    rank.kind = end.exit_code == kPeerExit ? Kind::kLostPeers : Kind::kFailed;
}

void NodeEnds::note_hung(int64_t rank, const std::string& last, bool is_first) {
  Rank& noted = ranks_.at(static_cast<size_t>(rank));
  noted.hung = describe_hung(static_cast<int>(rank), last);
  noted.is_first = is_first;
}

bool NodeEnds::end_node(int node) {
  bool is_any_running = false;
  // A place that was given for the next generation, which may be larger, and never started.
  if (static_cast<size_t>(node + 1) * static_cast<size_t>(ranks_per_node_) > ranks_.size())
    return false;
  for (int r = node * ranks_per_node_; r < (node + 1) * ranks_per_node_; ++r) {
    Rank& rank = ranks_.at(static_cast<size_t>(r));
    if (rank.kind != Kind::kRunning) continue;
    rank.kind = Kind::kGone;
    is_any_running = true;
  }
  return is_any_running;
}

bool NodeEnds::lose(int node, const std::string& words) {
  lost_nodes_.push_back({node, words});
  return end_node(node);
}

void NodeEnds::refuse(int node, const std::string& words, int exit_code) {
  if (!refusal_) refusal_ = {-1, words, exit_code, true, words};
  end_node(node);
}

bool NodeEnds::all_ended() const {
  return std::none_of(ranks_.begin(), ranks_.end(),
                      [](const Rank& rank) { return rank.kind == Kind::kRunning; });
}

bool NodeEnds::has_ended(int node) const {
  const auto begin = ranks_.begin() + std::ptrdiff_t{node} * ranks_per_node_;
  return std::none_of(begin, begin + ranks_per_node_,
                      [](const Rank& rank) { return rank.kind == Kind::kRunning; });
}

bool NodeEnds::is_well(int64_t rank) const {
  const Kind kind = ranks_.at(static_cast<size_t>(rank)).kind;
  return kind == Kind::kDone || kind == Kind::kStopped;
}

bool NodeEnds::may_pass(int64_t rank) const {
  const Kind kind = ranks_.at(static_cast<size_t>(rank)).kind;
  return kind == Kind::kDied || kind == Kind::kLostPeers;
}

bool NodeEnds::is_death(int64_t rank) const {
  return may_pass(rank) || ranks_.at(static_cast<size_t>(rank)).kind == Kind::kKilledByUs;
}

bool NodeEnds::has_any_stopped() const { return first(Kind::kStopped) != nullptr; }

const NodeEnds::Rank* NodeEnds::first(Kind kind, bool has_hung) const {
  const Rank* found = nullptr;
  for (const Rank& rank : ranks_) {
    if (rank.kind == kind && (!has_hung || !rank.hung.empty()) &&
        (found == nullptr || rank.order < found->order))
      found = &rank;
  }
  return found;
}

const NodeEnds::Rank* NodeEnds::hung() const {
  const Rank* hung = first(Kind::kKilledByUs, true);
  if (hung == nullptr || first(Kind::kLostPeers) == nullptr) return hung;
  const bool is_cause = std::any_of(ranks_.begin(), ranks_.end(), [](const Rank& rank) {
    return rank.end.has_waited || rank.is_first;
  });
  return is_cause ? hung : nullptr;
}

std::optional<NodeEnds::Cause> NodeEnds::cause() const {
  if (refusal_) return refusal_;
  const auto of = [](const Rank* rank, int code, bool repeats) {
    const std::string said = end_with_words(rank->end);
    const bool is_input = rank->end.signal == 0 && code == kUserExit && !rank->end.words.empty();
    return Cause{static_cast<int>(rank->end.rank), one_line(said), code, repeats,
                 is_input ? rank->end.words : said};
  };
  if (const Rank* failed = first(Kind::kFailed)) return of(failed, failed->end.exit_code, true);
  if (is_well(0)) return std::nullopt;
  if (const Rank* died = first(Kind::kDied)) return of(died, kPeerExit, false);
  if (!lost_nodes_.empty())
    return Cause{-1, lost_nodes_.front().words, kPeerExit, false, lost_nodes_.front().words};
  if (const Rank* rank = hung())
    return Cause{static_cast<int>(rank->end.rank), rank->hung, kPeerExit, false, rank->hung};
  for (const Kind kind : {Kind::kLostPeers, Kind::kKilledByUs}) {
    if (const Rank* rank = first(kind)) return of(rank, kPeerExit, false);
  }
  return std::nullopt;
}

std::vector<DeadRank> NodeEnds::others_than(int rank) const {
  std::vector<DeadRank> others;
  for (const Rank& dead : ranks_) {
    if (dead.end.rank == rank) continue;
    if (dead.kind == Kind::kDied)
      others.push_back({static_cast<int>(dead.end.rank), static_cast<int>(dead.end.signal)});
    if (dead.kind == Kind::kKilledByUs && !dead.hung.empty())
      others.push_back({static_cast<int>(dead.end.rank), 0});
  }
  return others;
}

std::string NodeEnds::describe(const RankEnd& end) { return one_line(end_with_words(end)); }

std::string NodeEnds::end_with_words(const RankEnd& end) {
  std::string text =
      end.signal != 0
          ? fmt::format("rank {} was killed by {}", end.rank, describe_signal(end.signal))
          : fmt::format("rank {} ended with exit code {}", end.rank, end.exit_code);
  const bool is_well = end.signal == 0 && end.exit_code == 0;
  if (!end.words.empty() && !is_well) text += ": " + end.words;
  return text;
}

}  // namespace weft
