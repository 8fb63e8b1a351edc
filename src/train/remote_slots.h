// train/remote_slots.h: the slots of ranks on other nodes, read from those nodes' agents.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "checkpoint/slice_reader.h"
#include "net/secret.h"
#include "net/slot_client.h"
#include "net/store.h"
#include "train/rank_place.h"

namespace weft {

// Connects to an agent when it is first asked. Ranks are numbered over all nodes. PeerError where
// an agent is gone. is_previous: the slots of the previous layout, whose numbers they have.
class RemoteSlots {
 public:
  explicit RemoteSlots(const RankPlace& place, bool is_previous = false)
      : place_(place), is_previous_(is_previous) {}

  // Of the previous layout, those first whose slots, or copies of them, this node's agent has.
  std::vector<int64_t> nearest_nodes();
  std::string text(int rank, int64_t step);
  std::vector<std::string> layouts(int64_t node, int64_t step);  // of each of its ranks
  void read(int rank, int64_t step, size_t begin, size_t end, const SliceReader::Take& take);

 private:
  SlotClient& client_of(int64_t node);
  int per_node() const { return place_.slots->num_ranks(); }

  std::string value_of(const std::string& key);
  std::string endpoint_of(int64_t node);
  const std::vector<std::string>& previous();

  const RankPlace& place_;
  const bool is_previous_;
  std::mutex mutex_;  // guards the rest
  std::unique_ptr<Secret> secret_;
  std::unique_ptr<StoreClient> store_;
  std::vector<std::string> previous_;                       // endpoints, by node
  std::map<int64_t, std::unique_ptr<SlotClient>> clients_;  // by node
};

}  // namespace weft
