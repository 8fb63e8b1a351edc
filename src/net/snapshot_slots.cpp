// net/snapshot_slots.cpp: the layout of the segment: headers first, then a stretch per slot.
#include "net/snapshot_slots.h"

#include <algorithm>
#include <cstring>

#include "base/error.h"
#include "base/round_up.h"
#include "net/fence.h"
#include "net/shm_world.h"

namespace weft {
namespace {

constexpr uint64_t kSlotsMagic = 0x31746f6c73667777;  // "wwfslot1"
constexpr int64_t kSlotStretch = int64_t{1} << 43;    // of the sparse file, per slot
constexpr int64_t kLayoutBytes = int64_t{64} << 20;   // of a rank, sparse; its own stretch

enum State : uint32_t { kEmpty = 0, kWriting = 1, kWhole = 2 };

}  // namespace

// version: of its content, counted by begin(). Readers in other processes take no lock: they copy,
// and then look whether state and version are what they were (a seqlock).
struct SnapshotSlots::Slot {
  std::atomic<uint32_t> state;
  std::atomic<uint64_t> version;
  std::atomic<int64_t> step, generation, text_bytes;
};

struct alignas(64) SnapshotSlots::Rank {
  std::atomic<int64_t> bytes;  // of each slot; 0: not reserved
  int64_t layout_bytes;
  Slot slots[kPerRank];
};

struct SnapshotSlots::Header {
  uint64_t magic;
  int32_t num_ranks;
  Rank ranks[kMaxLocalRanks];
};

namespace {

int64_t header_bytes(size_t bytes) { return round_up(static_cast<int64_t>(bytes), kLargestPage); }
int64_t num_stretches(int num_ranks) { return int64_t{num_ranks} * SnapshotSlots::kPerRank; }

}  // namespace

std::shared_ptr<SnapshotSlots> SnapshotSlots::create(int num_ranks, const char* suffix) {
  ensure(num_ranks >= 1 && num_ranks <= kMaxLocalRanks, "slots for that many ranks");
  const std::string name = std::string("weft-snapshots") + suffix;
  std::shared_ptr<SnapshotSlots> slots(new SnapshotSlots(
      SharedSegment::create(name.c_str(), kSlotStretch * (num_stretches(num_ranks) + 1))));
  slots->header_->num_ranks = num_ranks;
  slots->header_->magic = kSlotsMagic;
  slots->mapped_.resize(static_cast<size_t>(num_stretches(num_ranks)));
  return slots;
}

std::shared_ptr<SnapshotSlots> SnapshotSlots::attach(int fd) {
  SharedSegment segment = SharedSegment::attach(fd);
  require(segment.bytes() >= kSlotStretch, "descriptor {} does not hold weft's snapshots", fd);
  std::shared_ptr<SnapshotSlots> slots(new SnapshotSlots(std::move(segment)));
  const Header& header = *slots->header_;
  require(
      header.magic == kSlotsMagic && header.num_ranks >= 1 && header.num_ranks <= kMaxLocalRanks,
      "descriptor {} does not hold weft's snapshots", fd);
  slots->mapped_.resize(static_cast<size_t>(num_stretches(header.num_ranks)));
  return slots;
}

SnapshotSlots::SnapshotSlots(SharedSegment segment) : segment_(std::move(segment)) {
  header_ = reinterpret_cast<Header*>(segment_.map_part(0, header_bytes(sizeof(Header))));
}

SnapshotSlots::~SnapshotSlots() {
  for (const Mapped& m : mapped_) unmap_part(m.part, m.bytes);
  unmap_part(header_, header_bytes(sizeof(Header)));
}

int SnapshotSlots::num_ranks() const { return header_->num_ranks; }

// The text is in front of the bytes, which begin at a page: they are written past the page cache.
std::byte* SnapshotSlots::map_slot(int rank, int slot) {
  const int64_t bytes =
      static_cast<int64_t>(kTextBytes) + round_up(header_->ranks[rank].bytes.load(), kLargestPage);
  const auto index = static_cast<size_t>(rank * kPerRank + slot);
  const std::lock_guard lock(mutex_);
  Mapped& mapped = mapped_[index];
  if (mapped.bytes != bytes) {
    unmap_part(mapped.part, mapped.bytes);
    mapped = {};
    ensure(bytes <= kSlotStretch, "a snapshot is larger than its stretch");
    mapped.part = segment_.map_part(kSlotStretch * (static_cast<int64_t>(index) + 1), bytes);
    mapped.bytes = bytes;
  }
  return reinterpret_cast<std::byte*>(mapped.part);
}

void SnapshotSlots::reserve(int rank, int64_t bytes, const std::string& text) {
  Rank& entry = header_->ranks[rank];
  if (entry.bytes.load() == bytes && layout(rank) == text) return;
  for (Slot& slot : entry.slots) slot.state.store(kEmpty);
  const auto size = static_cast<int64_t>(text.size());
  ensure(size <= kLayoutBytes, "the layout of a snapshot is too long");
  const int64_t at = kLayoutBytes * (rank + 1);
  if (size > 0) {
    char* part = segment_.map_part(at, round_up(size, kLargestPage));
    std::copy(text.begin(), text.end(), part);
    unmap_part(part, round_up(size, kLargestPage));
  }
  entry.layout_bytes = size;
  entry.bytes.store(bytes);
}

std::string SnapshotSlots::layout(int rank) const {
  const Rank& entry = header_->ranks[rank];
  if (entry.bytes.load() == 0 || entry.layout_bytes == 0) return "";
  const int64_t size = round_up(entry.layout_bytes, kLargestPage);
  char* part = segment_.map_part(kLayoutBytes * (rank + 1), size);
  std::string text(part, static_cast<size_t>(entry.layout_bytes));
  unmap_part(part, size);
  return text;
}

std::byte* SnapshotSlots::begin(int rank, int slot, int64_t step, int64_t generation) {
  Slot& s = header_->ranks[rank].slots[slot];
  s.state.store(kWriting, std::memory_order_relaxed);
  // Who sees this version also sees that it is being written, not the state of the last one.
  s.version.fetch_add(1, std::memory_order_release);
  // No reader may see a new byte and the old version: a store alone, whatever its order, lets later
  // ones pass it.
  full_fence();
  s.step.store(step, std::memory_order_relaxed);
  s.generation.store(generation, std::memory_order_relaxed);
  return map_slot(rank, slot) + kTextBytes;
}

void SnapshotSlots::finish(int rank, int slot, const std::string& text) {
  if (text.size() > kTextBytes)
    throw RunError(fmt::format("the text of a snapshot has {} bytes; {} are possible", text.size(),
                               kTextBytes));
  Slot& s = header_->ranks[rank].slots[slot];
  std::memcpy(map_slot(rank, slot), text.data(), text.size());
  s.text_bytes.store(static_cast<int64_t>(text.size()), std::memory_order_relaxed);
  s.state.store(kWhole, std::memory_order_release);
}

void SnapshotSlots::drop(int rank, int slot) {
  header_->ranks[rank].slots[slot].state.store(kEmpty);
}

const std::byte* SnapshotSlots::memory(int rank, int slot) {
  return map_slot(rank, slot) + kTextBytes;
}

std::optional<int64_t> SnapshotSlots::whole_step(int rank, int slot) const {
  const Slot& s = header_->ranks[rank].slots[slot];
  if (s.state.load(std::memory_order_acquire) != kWhole) return std::nullopt;
  return s.step.load(std::memory_order_relaxed);
}

bool SnapshotSlots::has(int rank, int64_t step) const {
  for (int i = 0; i < kPerRank; ++i) {
    if (whole_step(rank, i) == step) return true;
  }
  return false;
}

std::optional<SnapshotSlots::View> SnapshotSlots::find(int rank, int64_t step) {
  for (int i = 0; i < kPerRank; ++i) {
    const Slot& s = header_->ranks[rank].slots[i];
    const uint64_t version = s.version.load(std::memory_order_acquire);
    if (whole_step(rank, i) != step) continue;
    const std::byte* part = map_slot(rank, i);
    const auto text_bytes = static_cast<size_t>(s.text_bytes.load(std::memory_order_relaxed));
    View view{i,
              step,
              s.generation.load(std::memory_order_relaxed),
              part + kTextBytes,
              header_->ranks[rank].bytes.load(),
              std::string(reinterpret_cast<const char*>(part), std::min(text_bytes, kTextBytes)),
              version};
    if (still_holds(rank, view)) return view;
  }
  return std::nullopt;
}

bool SnapshotSlots::still_holds(int rank, const View& view) const {
  full_fence();  // what was copied was read before this
  const Slot& s = header_->ranks[rank].slots[view.slot];
  return s.state.load(std::memory_order_relaxed) == kWhole &&
         s.version.load(std::memory_order_relaxed) == view.version;
}

std::vector<int64_t> SnapshotSlots::common_steps() const {
  std::vector<int64_t> steps;
  for (int i = 0; i < kPerRank; ++i) {
    const std::optional<int64_t> step = whole_step(0, i);
    bool is_common = step.has_value();
    for (int r = 1; r < num_ranks() && is_common; ++r) is_common = has(r, *step);
    if (is_common) steps.push_back(*step);
  }
  return steps;
}

std::optional<int64_t> SnapshotSlots::newest_common() const {
  const std::vector<int64_t> steps = common_steps();
  if (steps.empty()) return std::nullopt;
  return *std::max_element(steps.begin(), steps.end());
}

int64_t SnapshotSlots::bytes(int rank) const { return header_->ranks[rank].bytes.load(); }

void SnapshotSlots::drop_newer(int64_t step) {
  for (int r = 0; r < num_ranks(); ++r) {
    for (int i = 0; i < kPerRank; ++i) {
      if (whole_step(r, i).value_or(-1) > step) drop(r, i);
    }
  }
}

void SnapshotSlots::drop_all() {
  for (int r = 0; r < num_ranks(); ++r) {
    for (int i = 0; i < kPerRank; ++i) drop(r, i);
    header_->ranks[r].bytes.store(0);
  }
  segment_.release(kSlotStretch, kSlotStretch * num_stretches(num_ranks()));
}

}  // namespace weft
