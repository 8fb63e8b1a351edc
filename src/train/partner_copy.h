// train/partner_copy.h: copies of this rank's slots in the memory of another node
// (docs/design/0021-memory-of-nodes.md).
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>

#include "net/slot_client.h"
#include "train/rank_place.h"

namespace weft {

// One per generation. The partner is the next node; the last one's is the first.
class PartnerCopy {
 public:
  // The place must outlive it.
  explicit PartnerCopy(const RankPlace& place) : place_(place) {}
  // Null: this run has one node, or no slots.
  static std::shared_ptr<PartnerCopy> of(const RankPlace& place);

  // Sends the slot of that step, where it is whole here and not there. Where that fails, a warning
  // says so, and none are sent any more in this generation.
  void send(int64_t step);
  double cost_s() const { return cost_s_; }  // of the last one that was sent, for the cadence
  void shut_down() noexcept;                 // from any thread: send returns

 private:
  void connect();
  void send_slot(const SnapshotSlots::View& view);

  const RankPlace& place_;
  std::mutex mutex_;  // guards client_ while it is made
  std::unique_ptr<SlotClient> client_;
  std::atomic<bool> is_over_ = false;
  std::atomic<double> cost_s_ = 0;
};

}  // namespace weft
