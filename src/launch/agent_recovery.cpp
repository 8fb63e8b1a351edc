// launch/agent_recovery.cpp: an agent whose ranks outlive the death of others.
#include <csignal>
#include <utility>

#include "base/error.h"
#include "base/log.h"
#include "launch/node_agent.h"

namespace weft {

void Agent::expect_deaths() {
  ranks_->world().set_recovers(true);
  service_->show(start_.node, ranks_->shared_slots());
  if (start_.num_nodes > 1) keep_copies();
  parking_ = std::make_unique<Parking>(job_, *ranks_,
                                       [this](int rank, const std::string& text, bool is_first) {
                                         report_hung(rank, text, is_first);
                                       });
}

// Without them only the loss of that node costs more: its ranks warn, and train on.
void Agent::keep_copies() {
  try {
    kept_ = SnapshotSlots::create(ranks_->size(), "-of-partner");
  } catch (const RunError& e) {
    log_warning("this node keeps no copies of another node's snapshots: {}", e.what());
  }
  service_->keep(node_before(), kept_);
}

void Agent::advance_parking() {
  if (!parking_) return;
  parking_->look();
  if (!is_parking() || !parking_->is_quiet()) return;
  has_reported_parked_ = true;
  send(
      NodeMessage::kParked,
      Parked{start_.generation, ranks_->world().abort_reason(), ranks_->slots()->common_steps(),
             kept_ ? kept_->common_steps() : std::vector<int64_t>{}, ranks_->world().memory_fault()}
          .write());
}

void Agent::park(const Park& park) {
  if (!ranks_ || park.generation != start_.generation) return;
  // Half a node's slots are none: it joins again, and what its partner keeps counts.
  if (fetch_ && !park.is_end) throw PeerError("a rank was lost before this node's could start");
  if (park.is_end) {
    ranks_->world().set_recovers(false);
    report_unstarted();
  }
  if (!parking_) return;
  if (park.is_end && park.step >= 0) keep_previous(park.step);
  parking_->begin(park.reason);
  parking_->hurry(park.is_hang);
}

// Every rank of the run is parked or has ended: nobody touches the world, the slots or files.
void Agent::resume(const Resume& resume) {
  if (!parking_ || !has_reported_parked_ || resume.generation <= start_.generation)
    throw PeerError("the supervisor resumes a generation that does not wait for it");
  reap();
  start_.generation = resume.generation;
  start_.store = job_.node->store = resume.store;
  was_finishing_ = was_opened_ = has_reported_parked_ = false;
  parking_->end();
  ranks_->world().set_store(resume.store);
  ranks_->world().set_run_generation(resume.generation);
  std::vector<int> dead;
  for (int r = 0; r < ranks_->size(); ++r) {
    if (!(*ranks_)[r].is_running) dead.push_back(r);
  }
  forget_previous();
  service_->go_back(resume.step);
  ranks_->world().reset(dead, resume.step);
  for (const int r : dead) ranks_->start(r);
}

// ------------------------------------------------------------------ in place of a lost node

void Agent::begin_fetch() {
  static_cast<void>(ranks_->world().begin_saving());  // what was in the lost node's memory
  fetch_begin_ms_ = monotonic_ms();
  fetch_ = std::make_unique<CopyFetch>(start_.copies_at, secret_, start_.node, start_.step,
                                       ranks_->shared_slots());
}

// The supervisor decides what follows: storage, unless another node was lost meanwhile.
void Agent::give_up_fetch(const std::string& why) {
  fetch_.reset();
  const std::string words =
      fmt::format("node {} could not fetch the copies of its snapshots: {}", start_.node, why);
  ranks_->world().note_memory_fault(words);
  parking_->begin(words);
}

void Agent::advance_fetch() {
  try {
    if (!fetch_ || !fetch_->is_done()) return;
  } catch (const std::exception& e) {  // also std::bad_alloc
    return give_up_fetch(e.what());
  }
  fetch_.reset();
  ShmWorld& world = ranks_->world();
  world.note_death(fetch_begin_ms_);
  world.note_step(start_.last_step);
  std::vector<int> all;
  for (int r = 0; r < ranks_->size(); ++r) all.push_back(r);
  world.reset(all, start_.step);
  for (const int r : all) ranks_->start(r);
}

// Of ranks that will not be: the supervisor waits for their end.
void Agent::report_unstarted() {
  fetch_.reset();
  for (int r = 0; r < ranks_->size(); ++r) {
    if ((*ranks_)[r].pid >= 0) continue;
    RankEnd end{start_.generation, ranks_->number(r), 0, SIGKILL, true, "it was not started"};
    send(NodeMessage::kEnded, end.write());
  }
}

}  // namespace weft
