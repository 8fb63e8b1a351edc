// train/remote_slots.cpp: addresses of agents are in the generation's store.
#include "train/remote_slots.h"

#include <sstream>

#include "base/error.h"
#include "train/slot_deadline.h"

namespace weft {

// Under the lock, as the two below.
std::string RemoteSlots::value_of(const std::string& key) {
  const NodePlace now = place_.node_now();
  if (!secret_) secret_ = std::make_unique<Secret>(Secret::from_file(now.secret_file));
  if (!store_) store_ = std::make_unique<StoreClient>(now.store, kSlotMs, secret_.get());
  const auto value = store_->wait_for(key, kSlotMs);
  if (!value) throw PeerError("the run has ended before the snapshots were read");
  return *value;
}

const std::vector<std::string>& RemoteSlots::previous() {
  if (!previous_.empty()) return previous_;
  std::istringstream lines(value_of(kPreviousSlotsKey));
  for (std::string line; std::getline(lines, line);) previous_.push_back(line);
  return previous_;
}

std::string RemoteSlots::endpoint_of(int64_t node) {
  return is_previous_ ? previous().at(static_cast<size_t>(node)) : value_of(slots_key(node));
}

SlotClient& RemoteSlots::client_of(int64_t node) {
  const std::lock_guard lock(mutex_);
  std::unique_ptr<SlotClient>& client = clients_[node];
  if (client) return *client;
  const std::string endpoint = endpoint_of(node);
  client = std::make_unique<SlotClient>(endpoint, *secret_, kSlotMs, is_previous_);
  return *client;
}

// After its own the next ones in the ring: not all ranks ask the same agent.
std::vector<int64_t> RemoteSlots::nearest_nodes() {
  const std::lock_guard lock(mutex_);
  const auto num_nodes = static_cast<int64_t>(previous().size());
  const std::string here = place_.node->host + ":";
  std::vector<int64_t> nodes, others;
  for (int64_t i = 0; i < num_nodes; ++i) {
    const int64_t node = (place_.rank / per_node() + i) % num_nodes;
    const bool is_here = previous_[static_cast<size_t>(node)].starts_with(here);
    (is_here ? nodes : others).push_back(node);
  }
  nodes.insert(nodes.end(), others.begin(), others.end());
  return nodes;
}

std::string RemoteSlots::text(int rank, int64_t step) {
  const int64_t node = rank / per_node();
  const auto found = client_of(node).text(node, rank % per_node(), step);
  if (!found) throw PeerError(fmt::format("node {} does not have them any more", node));
  return *found;
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
