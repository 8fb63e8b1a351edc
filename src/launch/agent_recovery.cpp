// launch/agent_recovery.cpp: an agent whose ranks outlive the death of others.
#include <utility>

#include "base/error.h"
#include "launch/node_agent.h"

namespace weft {

void Agent::expect_deaths() {
  ranks_->world().set_recovers(true);
  service_->show(start_.node, ranks_->shared_slots());
  parking_ = std::make_unique<Parking>(
      job_, *ranks_, [this](int rank, const std::string& text) { tell_hung(rank, text); });
}

void Agent::advance_parking() {
  if (!parking_) return;
  parking_->look();
  if (!is_parking() || !parking_->is_quiet()) return;
  has_told_parked_ = true;
  send(NodeMessage::kParked,
       Parked{start_.generation, ranks_->world().abort_reason(), ranks_->slots()->common_steps()}
           .write());
}

void Agent::park(const Park& park) {
  if (!ranks_ || park.generation != start_.generation) return;
  if (park.is_end) ranks_->world().set_recovers(false);
  if (!parking_) return;
  parking_->begin(park.reason);
  if (park.is_hang) parking_->hurry();
}

// Every rank of the run is parked or has ended: nobody touches the world, the slots or files.
void Agent::resume(const Resume& resume) {
  if (!parking_ || !has_told_parked_ || resume.generation <= start_.generation)
    throw PeerError("the supervisor resumes a generation that does not wait for it");
  reap();
  start_.generation = resume.generation;
  start_.store = job_.node->store = resume.store;
  was_finishing_ = has_told_parked_ = false;
  parking_->end();
  ranks_->world().set_store(resume.store);
  std::vector<int> dead;
  for (int r = 0; r < ranks_->size(); ++r) {
    if (!(*ranks_)[r].is_running) dead.push_back(r);
  }
  ranks_->world().reset(dead, resume.step);
  for (const int r : dead) ranks_->start(r);
}

}  // namespace weft
