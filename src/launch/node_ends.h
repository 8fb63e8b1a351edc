// launch/node_ends.h: how the ranks of one generation have ended, on all nodes, and what it means.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "launch/node_messages.h"
#include "launch/rank_end.h"

namespace weft {

class NodeEnds {
 public:
  NodeEnds(int num_nodes, int ranks_per_node);

  void begin(int num_nodes);                       // all run again
  void note(const RankEnd& end, int stop_signal);  // stop_signal: that all were asked to end with
  // Its agent is about to kill it. is_first: Hung's.
  void note_hung(int64_t rank, const std::string& last, bool is_first);
  bool lose(int node, const std::string& words);  // its ranks are gone; whether any still ran
  void refuse(int node, const std::string& words, int exit_code);  // they were never started

  bool all_ended() const;
  bool has_ended(int node) const;     // all its ranks have
  bool is_well(int64_t rank) const;   // it has done its work, or saved and stopped
  bool may_pass(int64_t rank) const;  // it has died or lost its peers, which rank 0 may survive
  bool is_death(int64_t rank) const;  // of which it may be replaced: also where its agent killed it
  bool has_any_stopped() const;
  struct LostNode {
    int node;
    std::string words;
  };
  const std::vector<LostNode>& lost_nodes() const { return lost_nodes_; }

  // Why the generation has ended: what failed by itself comes before deaths, deaths before ranks
  // that hung, and these before those who only lost their peers. One that was found to hang only
  // after another one's end is no cause of that, unless somebody has waited until a deadline: what
  // ends with 75 may have lost its GPU. None: it has done its work, which is the case when rank 0
  // has, unless a rank failed by itself.
  struct Cause {
    int rank;           // -1: a node
    std::string words;  // on one line
    int exit_code;
    bool would_repeat;
    std::string report;  // the same for people, with the hint (report_end)
  };
  std::optional<Cause> cause() const;
  static std::string describe(const RankEnd& end);    // on one line
  std::vector<DeadRank> others_than(int rank) const;  // that died or hung too

 private:
  enum class Kind { kRunning, kDone, kStopped, kLostPeers, kDied, kKilledByUs, kFailed, kGone };
  struct Rank {
    Kind kind = Kind::kRunning;
    RankEnd end = {};
    std::string hung = {};  // in words; "": it did not
    bool is_first = false;  // Hung's
    int order = 0;          // of arrival
  };
  const Rank* first(Kind kind, bool has_hung = false) const;
  const Rank* hung() const;  // that is the cause; null: none is
  bool end_node(int node);
  static std::string end_with_words(const RankEnd& end);

  int ranks_per_node_;
  std::vector<Rank> ranks_;
  std::vector<LostNode> lost_nodes_;
  std::optional<Cause> refusal_;
  int num_ended_ = 0;
};

}  // namespace weft
