// launch/node_recovery.cpp: a rank dies, the others park, and all go on from a step that the memory
// of all nodes holds (docs/design/0021-memory-of-nodes.md).
#include <algorithm>
#include <utility>

#include "base/error.h"
#include "base/log.h"
#include "launch/node_supervisor.h"
#include "net/slot_messages.h"

namespace weft {
namespace {

constexpr int64_t kStoreMs = 2000;

}  // namespace

void NodeSupervisor::open_store() {
  store_ = std::make_unique<StoreServer>(o_.host, "0", &secret_);
  if (!o_.job.has_snapshots) return;
  StoreClient client(store_->endpoint(), kStoreMs, &secret_);
  for (const JoinedAgent* node : nodes_) {
    if (node != nullptr) client.set(slots_key(node->node), node->hello->slots);
  }
}

void NodeSupervisor::abort_store(const std::string& reason) {
  try {
    StoreClient(store_->endpoint(), kStoreMs, &secret_).set(kAbortKey, reason);
  } catch (const Error& e) {
    log_warning("the reason of the end could not be passed on: {}", e.what());
  }
}

void NodeSupervisor::tell_to_park(const std::string& reason, bool is_hang, bool is_end) {
  const Park park{generation_, reason, is_hang, is_end};
  for (JoinedAgent* node : nodes_) {
    if (node != nullptr) agents_.send(*node, NodeMessage::kPark, park.write());
  }
}

void NodeSupervisor::begin_parking(const std::string& reason, bool is_hang) {
  // While it grows some ranks have saved and ended, and are no dead ones to replace.
  const bool can_park = o_.job.has_snapshots && phase_ == Phase::kRunning && !is_growing_;
  if (!can_park || !may_recover()) return begin_closing(reason);
  phase_ = Phase::kParking;
  parked_.assign(nodes_.size(), std::nullopt);
  parked_reason_ = reason;
  count_restart(reason);
  abort_store(reason);
  tell_to_park(reason, is_hang, false);
}

// A node whose ranks have parked although nobody has died: one of them has waited for too long.
void NodeSupervisor::handle_parked(const JoinedAgent& from, Parked parked) {
  if (from.node < 0 || parked.generation != generation_) return;
  if (phase_ == Phase::kRunning) begin_parking(parked.reason, true);
  if (phase_ == Phase::kParking) parked_.at(static_cast<size_t>(from.node)) = std::move(parked);
}

std::optional<int64_t> NodeSupervisor::newest_parked_step() const {
  std::optional<int64_t> newest;
  for (const int64_t step : parked_.front()->steps) {
    const bool is_common = std::all_of(parked_.begin(), parked_.end(), [&](const auto& parked) {
      return std::find(parked->steps.begin(), parked->steps.end(), step) != parked->steps.end();
    });
    if (is_common && (!newest || step > *newest)) newest = step;
  }
  return newest;
}

void NodeSupervisor::advance_parking() {
  const bool are_all_quiet =
      std::all_of(parked_.begin(), parked_.end(), [](const auto& p) { return p.has_value(); });
  if (!are_all_quiet) return;
  const std::optional<NodeEnds::Cause> cause = ends_.cause();
  const std::optional<int64_t> step = newest_parked_step();
  // What would repeat ends the run; rank 0 may have finished it alone; nothing is whole: storage.
  if ((cause && cause->would_repeat) || ends_.is_well(0) || !step)
    return begin_closing(parked_reason_);
  resume(*step, cause);
}

void NodeSupervisor::resume(int64_t step, const std::optional<NodeEnds::Cause>& cause) {
  const std::string words = cause ? cause->words : parked_reason_;
  warn_of_restart(words, fmt::format("step {}", step));
  tell("died", cause ? cause->rank : -1, words);
  tell("continued", -1, std::to_string(step));
  ++generation_;
  ends_.begin(layout_.num_nodes);
  open_store();
  is_counted_ = false;
  phase_ = Phase::kRunning;
  const Resume message{generation_, step, store_->endpoint()};
  for (JoinedAgent* node : nodes_) agents_.send(*node, NodeMessage::kResume, message.write());
  tell("started", -1, fmt::format("generation {}", generation_));
}

void NodeSupervisor::count_restart(const std::string& reason) {
  last_cause_ = reason;
  if (std::exchange(is_counted_, true)) return;
  ++num_restarts_;
  restarted_step_ = last_step_;
}

void NodeSupervisor::warn_of_restart(const std::string& words, const std::string& from) const {
  log_warning("{}; continuing from {}{}", words, from,
              o_.job.max_restarts > 0
                  ? fmt::format(" (restart {} of {})", num_restarts_, o_.job.max_restarts)
                  : "");
}

}  // namespace weft
