// launch/node_previous.cpp: an elastic run that continues in another layout from the memory of its
// nodes (docs/design/0022-elastic.md).
#include "base/log.h"
#include "launch/node_supervisor.h"

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

void NodeSupervisor::give_up_previous(const std::string& why) {
  const std::string words = "the snapshots of the layout before cannot be used: " + why;
  log_warning("{}; continuing from {}", words, o_.job.saved_words());
  report("recovery_failed", -1, words);
  report("continued", -1, "storage");
  forget_previous();
}

// Of the generation that starts now.
std::optional<int64_t> NodeSupervisor::use_previous() {
  if (!previous_) return std::nullopt;
  const std::optional<int64_t> step = previous_step();
  if (!step) give_up_previous("the last node that had some of them was lost");
  if (step && !has_snapshots_) give_up_previous("the next layout has no memory for copies");
  return previous_ ? step : std::nullopt;
}

}  // namespace weft
