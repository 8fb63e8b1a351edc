// launch/node_previous.cpp: an elastic run that continues in another layout from the memory of its
// nodes (docs/design/0022-elastic.md).
#include <fmt/format.h>

#include "base/log.h"
#include "base/stop.h"
#include "launch/node_supervisor.h"
#include "launch/rank_end.h"
#include "net/regroup.h"

namespace weft {

// All nodes have parked, or are lost: what they have stays readable for the next layout.
void NodeSupervisor::keep_previous() {
  std::vector<std::string> endpoints;
  for (const JoinedAgent* node : nodes_)
    endpoints.push_back(node != nullptr ? node->hello->slots : "");
  previous_.emplace(parked_, std::move(endpoints));
}

std::optional<int64_t> NodeSupervisor::previous_step() const {
  return previous_ ? previous_->newest_step() : std::nullopt;
}

// Also to nodes that wait as spares.
void NodeSupervisor::forget_previous() {
  if (!previous_) return;
  previous_.reset();
  for (JoinedAgent& agent : agents_.all()) {
    if (agent.hello) agents_.send(agent, NodeMessage::kForget);
  }
}

// After a stop signal they were only to be saved: nothing continues.
std::string NodeSupervisor::give_up_previous(const std::string& why) {
  const std::string words = "the snapshots of the layout before cannot be used: " + why;
  report("recovery_failed", -1, words);
  forget_previous();
  if (stop_signal_ != 0) return words;
  log_warning("{}; continuing from {}", words, o_.job.saved_words());
  report("continued", -1, "storage");
  return words;
}

// Of the generation that starts now; fault: why it has none.
std::optional<int64_t> NodeSupervisor::use_previous(std::string* fault) {
  if (!previous_) return std::nullopt;
  const std::optional<int64_t> step = previous_step();
  if (!step) *fault = give_up_previous("the last node that had some of them was lost");
  if (step && !has_snapshots_)
    *fault = give_up_previous("the next layout has no memory for copies");
  return previous_ ? step : std::nullopt;
}

// ------------------------------------------------------------------ an end while nodes are missing

// Nobody has taken a lost node's place in time: as after a signal, but the run ends with 75.
void NodeSupervisor::give_up_waiting() {
  given_up_words_ = missing_words();
  stop_signal_ = kSaveAndEnd;
  gather_until_ = Clock::now() + std::chrono::milliseconds(o_.join_ms);  // for those who save
  report("stopping", -1, stop_words());
}

std::string NodeSupervisor::stop_words() const {
  if (!has_given_up()) return signal_name(stop_signal_);
  return fmt::format("no other node has joined within {} s", o_.join_ms / 1000);
}

// All have parked: the nodes that are left save step in a layout of their own, also one in which
// they would not train. False: there is none for so few.
bool NodeSupervisor::begin_saving(int64_t step) {
  choice_.allow_all();
  if (!choice_.largest(num_nodes_there())) return false;
  keep_previous();
  begin_closing(parked_reason_, step);
  return true;
}

// No rank is there that could be asked to save.
bool NodeSupervisor::is_between_layouts() const {
  return previous_ && (phase_ == Phase::kClosing || phase_ == Phase::kGathering);
}

void NodeSupervisor::gather_to_save() {
  choice_.allow_all();
  const bool may_fit = choice_.is_checking() || choice_.largest(num_nodes_there());
  if (!previous_step() || !may_fit) return fail(-1, unsaved_words(), kPeerExit);
  gather_fewer();
}

std::string NodeSupervisor::unsaved_words(const std::string& known) {
  const std::string short_of =
      choice_.shortage().empty() ? "" : "; fewer do not fit: " + choice_.shortage();
  const std::string lost = fmt::format("step {} could not be saved: the steps since {} are lost",
                                       last_step_, o_.job.saved_words());
  if (has_given_up()) {
    const bool is_known = given_up_words_.ends_with(short_of);
    return fmt::format("{}; {}{}", given_up_words_, lost, is_known ? "" : short_of);
  }
  const std::string& why = ends_.lost_nodes().empty() ? why_ : ends_.lost_nodes().front().words;
  return fmt::format("{}{}: no other node has taken its place, so {}{}",
                     why == known ? "" : why + "; ", stop_words(), lost, short_of);
}

}  // namespace weft
