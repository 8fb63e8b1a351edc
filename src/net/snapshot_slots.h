// net/snapshot_slots.h: slots of each rank for copies of its state, in memory that outlives it.
//
// The supervisor creates the segment and keeps it; ranks inherit its descriptor. A rank writes its
// own slots and may read those of all. Texts and bytes are opaque here
// (docs/design/0015-survive.md).
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "net/shared_segment.h"

namespace weft {

class SnapshotSlots {
 public:
  // Two take turns; the third is for when a checkpoint is being written from one of them. Memory
  // is used from the first write to a slot on.
  static constexpr int kPerRank = 3;
  static constexpr size_t kTextBytes = size_t{1} << 20;

  // suffix: of the segment's name in /proc, after weft-snapshots.
  static std::shared_ptr<SnapshotSlots> create(int num_ranks, const char* suffix = "");
  static std::shared_ptr<SnapshotSlots> attach(int fd);
  ~SnapshotSlots();
  SnapshotSlots(const SnapshotSlots&) = delete;
  SnapshotSlots& operator=(const SnapshotSlots&) = delete;

  int fd() const { return segment_.fd(); }
  int num_ranks() const;

  // A rank's own: the size of each of its slots, and a text about their layout. Slots that are
  // whole stay so where neither differs from what is there; else they are emptied.
  void reserve(int rank, int64_t bytes, const std::string& layout);
  std::string layout(int rank) const;  // "": not reserved
  int64_t bytes(int rank) const;       // of each of its slots; 0: not reserved

  const std::byte* memory(int rank, int slot);  // of its bytes; RunError where it cannot be mapped
  // Marks the slot as being written, and returns its memory.
  std::byte* begin(int rank, int slot, int64_t step, int64_t generation);
  // It is whole. RunError where the text is too long.
  void finish(int rank, int slot, const std::string& text);
  void drop(int rank, int slot);  // empty from here on

  struct View {
    int slot;
    int64_t step, generation;
    const std::byte* data;
    int64_t bytes;
    std::string text;
    uint64_t version;  // of the slot's content
  };
  std::optional<View> find(int rank, int64_t step);  // a whole slot of that step
  // Asked after bytes of the view were copied while their rank may have written: whether they are
  // all of its step.
  bool still_holds(int rank, const View& view) const;
  std::optional<int64_t> whole_step(int rank, int slot) const;
  bool has(int rank, int64_t step) const;

  std::vector<int64_t> common_steps() const;  // that are whole in a slot of every rank
  // The newest of them.
  std::optional<int64_t> newest_common() const;
  void drop_newer(int64_t step);  // slots of all ranks that hold a later one
  void drop_all();  // of all ranks, and releases their memory; only while no rank runs

 private:
  struct Slot;
  struct Rank;
  struct Header;
  explicit SnapshotSlots(SharedSegment segment);
  std::byte* map_slot(int rank, int slot);

  SharedSegment segment_;
  Header* header_ = nullptr;
  std::mutex mutex_;  // guards mapping
  struct Mapped {
    char* part = nullptr;
    int64_t bytes = 0;
  };
  std::vector<Mapped> mapped_;  // by rank and slot
};

}  // namespace weft
