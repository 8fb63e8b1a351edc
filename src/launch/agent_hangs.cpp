// launch/agent_hangs.cpp: ranks that hang where none of them parks: shown, then killed.
//
// Where ranks continue from memory their parking finds them (launch/parking.h). Without snapshots a
// generation that has lost a rank ends: who has not noticed by then, though nobody else holds it
// up, hangs. Ranks that hang together are found by their heartbeats, as on one machine.
#include "base/printable.h"
#include "launch/node_agent.h"
#include "launch/process_stack.h"

namespace weft {

void Agent::report_hung(int rank, const std::string& text, bool is_first) {
  send(NodeMessage::kHung,
       Hung{start_.generation, ranks_->number(rank), printable(text), is_first}.write());
}

void Agent::kill_hung(int rank, bool is_first) {
  report_hung(rank, watch_->describe_last(rank) + "\n" + process_stack((*ranks_)[rank].pid),
              is_first);
  ranks_->kill(rank);
}

void Agent::look_for_hung() {
  if (parking_) return;
  if (const auto hung = watch_->find_hung(false)) kill_hung(*hung, true);
}

void Agent::kill_ranks() {
  for (int r = 0; r < ranks_->size(); ++r) {
    if (watch_->is_hanging(r, false)) kill_hung(r, false);
  }
  ranks_->kill_all();
}

}  // namespace weft
