// train/remote_slots.cpp: addresses of agents are in the generation's store.
#include "train/remote_slots.h"

#include "base/error.h"

namespace weft {

SlotClient& RemoteSlots::client_of(int64_t node) {
  const std::lock_guard lock(mutex_);
  std::unique_ptr<SlotClient>& client = clients_[node];
  if (client) return *client;
  const NodePlace now = place_.node_now();
  const int64_t deadline_ms = place_.world->hang_ms();
  if (!secret_) secret_ = std::make_unique<Secret>(Secret::from_file(now.secret_file));
  if (!store_) store_ = std::make_unique<StoreClient>(now.store, deadline_ms, secret_.get());
  const auto endpoint = store_->wait_for(slots_key(node), deadline_ms);
  if (!endpoint) throw PeerError("the run has ended before the snapshots were read");
  client = std::make_unique<SlotClient>(*endpoint, *secret_, deadline_ms);
  return *client;
}

std::string RemoteSlots::layout(int rank, int64_t step) {
  const int64_t node = rank / per_node();
  const auto found = client_of(node).layout(node, rank % per_node(), step);
  if (!found)
    throw PeerError(
        fmt::format("node {} has no snapshot of step {} of rank {} any more", node, step, rank));
  return *found;
}

void RemoteSlots::read(int rank, int64_t step, size_t begin, size_t end,
                       const SliceReader::Take& take) {
  const int64_t node = rank / per_node();
  client_of(node).read(node, rank % per_node(), step, begin, end, take);
}

}  // namespace weft
