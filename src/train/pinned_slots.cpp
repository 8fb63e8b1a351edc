// train/pinned_slots.cpp: one try per slot.
#include "train/pinned_slots.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "base/log.h"

namespace weft {

PinnedSlots::PinnedSlots(std::shared_ptr<SnapshotSlots> slots, int rank, Device* device)
    : slots_(std::move(slots)), rank_(rank), device_(device) {}

PinnedSlots::~PinnedSlots() {
  for (std::byte* memory : pinned_) {
    if (memory) device_->unpin(memory);
  }
}

void PinnedSlots::pin(int slot, int64_t bytes) {
  if (std::exchange(is_tried_[slot], true) || device_->is_host()) return;
  // It is this rank's own, and written by it alone.
  auto* memory = const_cast<std::byte*>(slots_->memory(rank_, slot));
  if (device_->pin(memory, bytes)) {
    pinned_[slot] = memory;
  } else if (std::count(std::begin(is_tried_), std::end(is_tried_), true) == 1) {
    log_warning("rank {}: {} cannot pin the memory of snapshots; copies to it take longer", rank_,
                device_->name());
  }
}

}  // namespace weft
