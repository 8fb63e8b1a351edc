// train/snapshots.h: the copies of a rank's state: one in its own memory, or slots that outlive it.
//
// With slots (net/snapshot_slots.h) some step is whole on every rank at any time, so that a run
// survives the death of a rank: see docs/design/0015-survive.md for the order that this needs.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "net/snapshot_slots.h"
#include "train/partner_copy.h"
#include "train/pinned_slots.h"
#include "train/snapshot.h"

namespace weft {

// Where a rank's slots are.
struct SlotPlace {
  std::shared_ptr<SnapshotSlots> slots;  // null: there are none
  int rank = 0;
  int64_t generation = 0;
  std::shared_ptr<PinnedSlots> pins = nullptr;     // null: they are used as they are
  std::shared_ptr<PartnerCopy> partner = nullptr;  // copies on another node; null: none
};

class Snapshots {
 public:
  // keep: steps whose slots stay; others are emptied.
  Snapshots(const RankFile& file, Device* device, SlotPlace place,
            const std::vector<int64_t>& keep = {});

  bool has_slots() const { return place_.slots != nullptr; }
  // Allocates own memory (Snapshot::reserve); slots are mapped by the constructor, and pinned here:
  // the third where saves will hold one.
  void reserve(bool has_saves);

  // By the loop. The slot of a step that is copied or being copied.
  std::optional<int> find(int64_t step) const;
  // For the next copy, of `step`: neither the one that is held nor, where there are slots, the
  // newest.
  int choose(int64_t step);
  void hold(int slot) { held_ = slot; }  // a checkpoint is written from it
  void release() { held_ = -1; }

  // Beside passes, which only read the state; nothing may update it meanwhile. text: with the slot.
  void copy(int slot, int64_t step, const std::string& text);
  const std::byte* image(int slot) const { return has_slots() ? images_[slot] : own_.image(); }

 private:
  void pin(int slot);

  const RankFile& file_;
  Device* device_;
  SlotPlace place_;
  Snapshot own_;
  int64_t steps_[SnapshotSlots::kPerRank] = {-1, -1, -1};
  const std::byte* images_[SnapshotSlots::kPerRank] = {};
  int held_ = -1, newest_ = 1;
};

// Why this rank's slots cannot be mapped; "": they can.
std::string reserve_slots(const SlotPlace& place, const RankFile& file);

}  // namespace weft
