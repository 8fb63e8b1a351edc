// train/pinned_slots.h: a rank's slots as memory that its GPU copies to at full speed.
#pragma once

#include <cstdint>
#include <memory>

#include "net/snapshot_slots.h"
#include "tensor/device.h"

namespace weft {

// Pinning takes seconds for some gigabytes, so it is done once per process and slot, however often
// a run goes back to a snapshot.
class PinnedSlots {
 public:
  // The device must outlive it.
  PinnedSlots(std::shared_ptr<SnapshotSlots> slots, int rank, Device* device);
  ~PinnedSlots();
  PinnedSlots(const PinnedSlots&) = delete;
  PinnedSlots& operator=(const PinnedSlots&) = delete;

  // Where that was not tried yet: a slot that cannot be pinned is used as it is, and a warning says
  // so once. bytes: of the slot. Only on the thread that copies.
  void pin(int slot, int64_t bytes);

 private:
  std::shared_ptr<SnapshotSlots> slots_;
  int rank_;
  Device* device_;
  bool is_tried_[SnapshotSlots::kPerRank] = {};
  std::byte* pinned_[SnapshotSlots::kPerRank] = {};
};

}  // namespace weft
