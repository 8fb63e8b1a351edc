// train/recovery.h: a run that continues from the snapshots of its ranks, after one of them died.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <vector>

#include "base/json.h"
#include "checkpoint/checkpoint.h"
#include "data/counters.h"
#include "net/snapshot_slots.h"
#include "train/rank_place.h"
#include "train/ranks.h"
#include "train/remote_slots.h"
#include "train/saver.h"

namespace weft {

// What this rank's slot says: state.json, and what only memory needs.
struct SlotText {
  Json state, about;
};
SlotText read_slot_text(const RankPlace& place, int64_t step);
// That of rank 0 of the previous layout. The counters are the sum of all its ranks', on the first
// data-parallel rank; other ranks have none.
SlotText read_previous_text(const RankPlace& place, const Ranks& ranks, int64_t step,
                            RemoteSlots* previous);

// Slots as one checkpoint, valid as long as they are not overwritten: this rank's own, and those of
// others as far as it needs them; of other nodes through `others`, which must outlive it.
//
// Where memory cannot be read (also later, through the reader) this and read_slot_text throw a
// PeerError, and the world knows (ShmWorld::memory_fault): the run goes on from storage.
CheckpointReader open_snapshots(const RankPlace& place, int64_t step,
                                const std::vector<Slice>& needed, RemoteSlots* others);

// PeerError, as above, where storage has a newer step.
void check_no_newer(const RankPlace& place, const std::filesystem::path& dir, int64_t step);
// The same, of the previous layout.
CheckpointReader open_previous(const RankPlace& place, int64_t step,
                               const std::vector<Slice>& needed, Json state, RemoteSlots* previous);

Json counters_to_json(const DataCounters& counters);
DataCounters counters_from_json(const Json& kept);

// The save that was in flight when the rank died, from the slot that it was written from; neither
// best nor checkpoint where all is on disk. Rank 0 looks, all get the same. Collective.
Saver::Again find_unfinished_save(const RankPlace& place, Ranks& ranks, const RunConfig& config,
                                  const std::filesystem::path& dir, int64_t step);
// Of the previous layout: only the save of that step itself can be made up for.
Saver::Again find_missing_save(Ranks& ranks, const RunConfig& config,
                               const std::filesystem::path& dir, int64_t step,
                               const SlotText& text);

}  // namespace weft
