// launch/agent_previous.cpp: the slots of a layout that has ended, while the next one is loaded
// from them (docs/design/0022-elastic.md).
#include <map>
#include <utility>

#include "launch/memory_counts.h"
#include "launch/node_agent.h"

namespace weft {

// Every rank of the run is parked or has ended. The slots outlive this node's ranks, also where it
// has none in the next layout.
void Agent::keep_previous(int64_t step) {
  service_->go_back(step);
  previous_ = {ranks_->shared_slots(), kept_, ranks_->world().death_ms()};
  std::map<int64_t, std::shared_ptr<SnapshotSlots>> slots;
  if (previous_.kept) slots[node_before()] = previous_.kept;
  if (previous_.own) slots[start_.node] = previous_.own;
  service_->show_previous(std::move(slots));
}

// This node's are those of the previous layout, and have ended: it waits as a spare.
bool Agent::has_previous_ranks() const {
  return ranks_ && previous_.own && previous_.own == ranks_->shared_slots() && !is_anyone_running();
}

void Agent::forget_previous() {
  previous_ = {};
  if (service_) service_->show_previous({});
  if (ranks_) ranks_->world().set_previous_slots(false);
}

// Its ranks start as replacements do.
void Agent::start_from_previous() {
  ShmWorld& world = ranks_->world();
  world.set_previous_slots(true);
  world.note_death(previous_.death_ms > 0 ? previous_.death_ms : monotonic_ms());
  world.note_step(start_.last_step);
  std::vector<int> all;
  for (int r = 0; r < ranks_->size(); ++r) all.push_back(r);
  world.reset(all, start_.step);
  static_cast<void>(
      world.begin_saving());  // a stop from here on has the previous layout's state to save
  for (const int r : all) ranks_->start(r);
}

// Before the ranks' own slots use memory: they wait for it.
void Agent::free_previous() {
  if (ranks_->world().has_previous_slots() && ranks_->world().has_loaded()) forget_previous();
}

// Of memory that this node's ranks, which may still be those of that layout, do not have.
int64_t Agent::previous_bytes() const {
  int64_t bytes = 0;
  if (previous_.own && previous_.own != ranks_->shared_slots())
    bytes += allocated_bytes(previous_.own->fd());
  if (previous_.kept && previous_.kept != kept_) bytes += allocated_bytes(previous_.kept->fd());
  return bytes;
}

}  // namespace weft
