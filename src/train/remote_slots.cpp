// train/remote_slots.cpp: addresses of agents are in the generation's store.
#include "train/remote_slots.h"

#include "base/error.h"
#include "train/slot_deadline.h"

namespace weft {

SlotClient& RemoteSlots::client_of(int64_t node) {
  const std::lock_guard lock(mutex_);
  std::unique_ptr<SlotClient>& client = clients_[node];
  if (client) return *client;
  const NodePlace now = place_.node_now();
  if (!secret_) secret_ = std::make_unique<Secret>(Secret::from_file(now.secret_file));
  if (!store_) store_ = std::make_unique<StoreClient>(now.store, kSlotMs, secret_.get());
  const auto endpoint = store_->wait_for(slots_key(node), kSlotMs);
  if (!endpoint) throw PeerError("the run has ended before the snapshots were read");
  client = std::make_unique<SlotClient>(*endpoint, *secret_, kSlotMs);
  return *client;
}

std::vector<std::string> RemoteSlots::layouts(int64_t node, int64_t step) {
  const auto found = client_of(node).layouts(node, step);
  if (!found || static_cast<int>(found->size()) != per_node())
    throw PeerError(fmt::format("node {} does not have them any more", node));
  return *found;
}

void RemoteSlots::read(int rank, int64_t step, size_t begin, size_t end,
                       const SliceReader::Take& take) {
  const int64_t node = rank / per_node();
  client_of(node).read(node, rank % per_node(), step, begin, end, take);
}

}  // namespace weft
