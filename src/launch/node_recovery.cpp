// launch/node_recovery.cpp: a rank dies, the others park, and all go on from a step that the memory
// of all nodes holds (docs/design/0021-memory-of-nodes.md).
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "base/log.h"
#include "launch/node_supervisor.h"
#include "launch/rank_end.h"
#include "net/slot_messages.h"

namespace weft {
namespace {

constexpr int64_t kStoreMs = 2000;

}  // namespace

void NodeSupervisor::open_store(bool has_previous) {
  store_ = std::make_unique<StoreServer>(o_.host, "0", &secret_);
  if (!has_snapshots_) return;
  StoreClient client(store_->endpoint(), kStoreMs, &secret_);
  for (const JoinedAgent* node : nodes_) {
    if (node != nullptr) client.set(slots_key(node->node), node->hello->slots);
  }
  if (has_previous)
    client.set(kPreviousSlotsKey, fmt::format("{}", fmt::join(previous_->endpoints(), "\n")));
}

void NodeSupervisor::abort_store(const std::string& reason) {
  try {
    StoreClient(store_->endpoint(), kStoreMs, &secret_).set(kAbortKey, reason);
  } catch (const Error& e) {
    log_warning("the reason of the end could not be passed on: {}", e.what());
  }
}

void NodeSupervisor::ask_to_park(const Park& park) {
  for (JoinedAgent* node : nodes_) {
    if (node != nullptr) agents_.send(*node, NodeMessage::kPark, park.write());
  }
}

void NodeSupervisor::begin_parking(const std::string& reason, bool is_hang) {
  // While it grows some ranks have saved and ended, and are no dead ones to replace.
  const bool can_park = has_snapshots_ && phase_ == Phase::kRunning && !is_growing_;
  if (!can_park || !may_recover()) return begin_closing(reason);
  phase_ = Phase::kParking;
  is_fresh_.assign(nodes_.size(), false);
  has_warned_ = is_death_reported_ = false;
  num_warned_ = 0;
  gather_until_ = Clock::now() + std::chrono::milliseconds(o_.join_ms);
  parked_reason_ = reason;
  is_hang_ = is_hang;
  count_restart(reason);
  abort_store(reason);
  ask_to_park({generation_, reason, is_hang});
}

// A node whose ranks have parked although nobody has died: one of them has waited for too long.
// While rank 0 finishes nobody needs them, but they say so only once: rank 0 may still be lost.
void NodeSupervisor::handle_parked(const JoinedAgent& from, Parked parked) {
  const bool is_awaited = phase_ == Phase::kRunning || phase_ == Phase::kParking;
  if (from.node < 0 || parked.generation != generation_ || !is_awaited) return;
  const std::string reason = parked.reason;
  parked_.at(static_cast<size_t>(from.node)) = std::move(parked);
  if (phase_ == Phase::kRunning && !is_finishing()) begin_parking(reason, true);
}

// Rank 0 has done its work, and whoever is left waits for a rank that nobody will replace.
bool NodeSupervisor::is_rest_parked() const {
  if (!ends_.is_well(0)) return false;
  for (size_t n = 0; n < nodes_.size(); ++n) {
    const bool is_quiet = parked_[n] || ends_.has_ended(static_cast<int>(n));
    if (nodes_[n] != nullptr && !is_quiet) return false;
  }
  return true;
}

// The death of a rank, or the loss of a node, may arrive after what other nodes have made of it:
// nobody hangs then, and who still completes a write has the time for it.
void NodeSupervisor::note_death(const std::string& words) {
  if (phase_ != Phase::kParking) return begin_parking(words, false);
  if (!std::exchange(is_hang_, false)) return;
  parked_reason_ = words;
  count_restart(words);
  ask_to_park({generation_, words});
}

// A lost node's slots live on as copies.
void NodeSupervisor::react_to_loss(int node, const std::string& words) {
  const bool was_parking = phase_ == Phase::kParking;
  parked_.at(static_cast<size_t>(node)).reset();
  note_death(words);
  if (was_parking) is_fresh_.at(static_cast<size_t>(node)) = false;
}

bool NodeSupervisor::are_all_quiet() const {
  for (size_t n = 0; n < nodes_.size(); ++n) {
    if (nodes_[n] != nullptr && !is_fresh_[n] && !parked_[n]) return false;
  }
  return true;
}

// Where no node was lost, nobody else has what a rank could not read.
std::string NodeSupervisor::memory_fault() const {
  if (!ends_.lost_nodes().empty()) return "";
  for (const std::optional<Parked>& parked : parked_) {
    if (parked && !parked->fault.empty()) return parked->fault;
  }
  return "";
}

void NodeSupervisor::warn_of_losses() {
  const size_t count = ends_.lost_nodes().size();
  for (size_t i = std::exchange(num_warned_, count); i < count; ++i)
    log_warning("{}", ends_.lost_nodes()[i].words);
}

// Whether every place has an agent again.
bool NodeSupervisor::fill_lost_places() {
  if (!is_complete() && has_spare()) warn_of_losses();  // before who takes their place
  const std::vector<JoinedAgent*> before = nodes_;
  place(layout_.num_nodes);
  for (size_t n = 0; n < nodes_.size(); ++n) is_fresh_[n] = is_fresh_[n] || nodes_[n] != before[n];
  return is_complete();
}

void NodeSupervisor::advance_parking() {
  if (!are_all_quiet() || has_leaving_node()) return;
  const std::optional<NodeEnds::Cause> cause = ends_.cause();
  const std::optional<int64_t> step = newest_parked_step(parked_);
  memory_fault_ = memory_fault();
  // What would repeat ends the run; rank 0 may have finished it alone; nothing is whole, or it
  // cannot be read: storage.
  if ((cause && cause->would_repeat) || ends_.is_well(0) || !step || !memory_fault_.empty()) {
    if (!memory_fault_.empty()) forget_previous();
    return begin_closing(parked_reason_);
  }
  if (fill_lost_places()) return resume(*step, cause);
  // An elastic run goes on without nodes; the first one's next agent is on its way.
  const bool is_any_missing = std::find(nodes_.begin() + 1, nodes_.end(), nullptr) != nodes_.end();
  const bool is_late = Clock::now() >= gather_until_;
  if (is_late && !is_any_missing) return fail(-1, missing_words(), kPeerExit);
  if (is_late && stop_signal_ == 0 && !choice_.is_elastic()) give_up_waiting();
  if (stop_signal_ != 0 && is_any_missing) {
    if (!begin_saving(*step)) fail(-1, unsaved_words(), kPeerExit);
    return;
  }
  if (choice_.is_elastic() && is_any_missing) {
    keep_previous();
    return begin_closing(parked_reason_, *step);
  }
  report_parked_death(cause);  // the wait may be long
  if (!std::exchange(has_warned_, true) && nodes_[0] != nullptr)
    log_warning("{}; waiting for another node: weft agent --join {} --secret-file {}",
                parked_reason_, agents_.endpoint(), o_.secret_file);
}

// Nobody touches the run's files; a lost node has its own event.
void NodeSupervisor::report_parked_death(const std::optional<NodeEnds::Cause>& cause) {
  if (cause && cause->rank < 0) return;
  if (std::exchange(is_death_reported_, true)) return;
  const int rank = cause ? cause->rank : -1;
  report_death(rank,
               (cause ? cause->words : parked_reason_) + describe_others(ends_.others_than(rank)));
}

void NodeSupervisor::resume(int64_t step, const std::optional<NodeEnds::Cause>& cause) {
  const int rank = cause ? cause->rank : -1;
  const std::string words =
      (cause ? cause->words : parked_reason_) + describe_others(ends_.others_than(rank));
  count_restart(words);
  warn_of_restart(words, fmt::format("step {}", step));
  report_parked_death(cause);
  report("continued", -1, std::to_string(step));
  ++generation_;
  ends_.begin(layout_.num_nodes);
  forget_previous();
  open_store();
  parked_.assign(nodes_.size(), std::nullopt);
  source_ = fmt::format("step {} in memory", step);
  is_counted_ = is_free_ = is_death_reported_ = false;
  is_growing_ = false;  // asked again where it still can
  phase_ = Phase::kRunning;
  const Resume message{generation_, step, store_->endpoint()};
  for (size_t n = 0; n < nodes_.size(); ++n) {
    if (!is_fresh_[n]) {
      agents_.send(*nodes_[n], NodeMessage::kResume, message.write());
      continue;
    }
    NodeStart start = start_of(static_cast<int>(n));
    start.step = step;
    start.last_step = std::max(step, last_step_);
    start.copies_at = nodes_[(n + 1) % nodes_.size()]->hello->slots;
    agents_.send(*nodes_[n], NodeMessage::kStart, start.write());
  }
  if (stop_signal_ != 0) ask_to_stop();  // of a fresh first node nobody has
  report("started", -1, fmt::format("generation {}", generation_));
}

// Once per generation. Who was to blame may be known only later: it is corrected then.
void NodeSupervisor::count_restart(const std::string& reason) {
  last_cause_ = reason;
  if (is_free_) return;
  if (std::exchange(is_counted_, true)) return budget_.correct(reason);
  budget_.count(reason, last_step_);
}

void NodeSupervisor::report_death(int rank, const std::string& words) const {
  for (const DeadRank& other : ends_.others_than(rank)) report("died_too", other.rank, "");
  report("died", rank, words);
}

void NodeSupervisor::warn_of_restart(const std::string& words, const std::string& from) const {
  log_warning("{}; continuing from {}{}", words, from, is_free_ ? "" : budget_.number());
}

}  // namespace weft
