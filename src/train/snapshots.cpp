// train/snapshots.cpp: which slot is next.
#include "train/snapshots.h"

#include <algorithm>

#include "base/error.h"

namespace weft {

std::string reserve_slots(const SlotPlace& place, const RankFile& file) {
  try {
    const IndexPart index = file.index();
    place.slots->reserve(place.rank, static_cast<int64_t>(file.bytes()),
                         index_to_json(index.tensors, index.headers, 1).dump());
    for (int i = 0; i < SnapshotSlots::kPerRank; ++i)
      static_cast<void>(place.slots->memory(place.rank, i));
    return "";
  } catch (const Error& e) {
    return e.what();
  }
}

Snapshots::Snapshots(const RankFile& file, Device* device, SlotPlace place,
                     const std::vector<int64_t>& keep)
    : file_(file), device_(device), place_(std::move(place)), own_(file, device) {
  if (!has_slots()) return;
  for (int i = 0; i < SnapshotSlots::kPerRank; ++i) {
    images_[i] = place_.slots->memory(place_.rank, i);
    const std::optional<int64_t> step = place_.slots->whole_step(place_.rank, i);
    if (step && std::find(keep.begin(), keep.end(), *step) != keep.end()) {
      steps_[i] = *step;
    } else {
      place_.slots->drop(place_.rank, i);
    }
  }
  newest_ = static_cast<int>(std::max_element(std::begin(steps_), std::end(steps_)) - steps_);
}

void Snapshots::pin(int slot) {
  if (place_.pins) place_.pins->pin(slot, static_cast<int64_t>(file_.bytes()));
}

void Snapshots::reserve(bool has_saves) {
  if (!has_slots()) return own_.reserve();
  for (int i = 0; i < SnapshotSlots::kPerRank - (has_saves ? 0 : 1); ++i) pin(i);
}

std::optional<int> Snapshots::find(int64_t step) const {
  for (int i = 0; i < SnapshotSlots::kPerRank; ++i) {
    if (steps_[i] == step) return i;
  }
  return std::nullopt;
}

int Snapshots::choose(int64_t step) {
  int slot = 0;  // the first possible: the third takes memory only while one is held
  while (has_slots() && (slot == held_ || slot == newest_)) ++slot;
  steps_[slot] = step;
  newest_ = slot;
  return slot;
}

void Snapshots::copy(int slot, int64_t step, const std::string& text) {
  if (!has_slots()) return own_.copy();
  pin(slot);
  copy_state(file_, device_, place_.slots->begin(place_.rank, slot, step, place_.generation));
  place_.slots->finish(place_.rank, slot, text);
}

}  // namespace weft
