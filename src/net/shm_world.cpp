// net/shm_world.cpp: the layout of the segment, its arenas, the abort flag.
#include "net/shm_world.h"

#include <algorithm>
#include <cstring>
#include <thread>
#include <utility>

#include "base/error.h"
#include "base/round_up.h"
#include "net/regroup.h"

namespace weft {
namespace {

constexpr uint64_t kWorldMagic = 0x31646c726f776677;  // "wfworld1"
// One stretch of the sparse file for the header and the control blocks (half of it for the first
// block, whose size is not known here), then one per rank for its arenas.
constexpr int64_t kWorldStretch = int64_t{1} << 44;
constexpr int64_t kHugePage = 2 << 20;  // arenas are aligned to huge pages
constexpr int64_t kMaxSleepMs = 20;     // an abort ends every wait within this time
constexpr size_t kTextBytes = 2040;

// A text written once: 0 empty, 1 being written, 2 complete. A writer that dies in state 1 leaves
// no text.
struct OnceText {
  std::atomic<uint32_t> state;
  char text[kTextBytes];

  bool write(const std::string& value) {
    uint32_t nothing = 0;
    if (!state.compare_exchange_strong(nothing, 1, std::memory_order_acq_rel)) return false;
    const size_t length = std::min(value.size(), kTextBytes - 1);
    std::memcpy(text, value.data(), length);
    text[length] = '\0';
    state.store(2, std::memory_order_release);
    return true;
  }
  void clear() { state.store(0, std::memory_order_release); }
  bool is_begun() const { return state.load(std::memory_order_acquire) != 0; }
  std::string read() const {
    for (int i = 0; i < 100 && state.load(std::memory_order_acquire) == 1; ++i) {
      std::this_thread::sleep_for(std::chrono::microseconds(100));
    }
    return state.load(std::memory_order_acquire) == 2 ? text : "";
  }
};

}  // namespace

struct ShmWorld::Arena {
  int64_t offset, bytes;
};

struct ShmWorld::Header {
  uint64_t magic;
  int32_t num_ranks;
  int32_t spin;
  int64_t chunk_bytes;
  std::atomic<int64_t> deadline_ms;
  std::atomic<int32_t> num_patient;
  std::atomic<int64_t> next_block;
  std::atomic<int> stage;  // of the job: nothing to save yet, may save, ended before it could
  std::atomic<int> stop;   // the signal
  OnceText aborted, memory_fault;
  std::atomic<bool> recovers, has_saved, has_stepped, is_opened, is_finishing;
  std::atomic<bool> has_previous_slots, has_loaded, has_waited;
  std::atomic<int64_t> start_step, last_step, death_ms, run_generation;
  SharedWord generation;
  std::atomic<int64_t> lease_ms;
  char store[256];
  struct alignas(64) Rank {
    Heartbeat heartbeat;  // a cache line of its own: nothing else here changes in a step
    std::atomic<uint32_t> num_arenas;
    Arena arenas[kMaxArenas];
    OnceText failure;
    std::atomic<bool> has_ended, is_held;
    std::atomic<uint32_t> parked;   // the generation that it waits for; 0: it runs
    std::atomic<uint32_t> process;  // counts those that have had this number
  } ranks[kMaxLocalRanks];
};

std::shared_ptr<ShmWorld> ShmWorld::create(const WorldOptions& options) {
  require(options.num_ranks >= 1 && options.num_ranks <= kMaxLocalRanks,
          "{} ranks on one machine; 1 to {} are possible", options.num_ranks, kMaxLocalRanks);
  ensure(options.chunk_bytes >= 64, "a staging chunk holds at least 64 bytes");
  std::shared_ptr<ShmWorld> world(
      new ShmWorld(SharedSegment::create("weft", kWorldStretch * (options.num_ranks + 1))));
  Header& header = *world->header_;
  header.num_ranks = options.num_ranks;
  header.spin = options.spin;
  header.chunk_bytes = round_up(std::max<int64_t>(options.chunk_bytes, 64 * options.num_ranks), 64);
  header.deadline_ms = options.deadline_ms;
  header.next_block = kWorldStretch / 2;
  header.start_step = header.run_generation = -1;
  header.magic = kWorldMagic;
  return world;
}

std::shared_ptr<ShmWorld> ShmWorld::attach(int fd) {
  SharedSegment segment = SharedSegment::attach(fd);
  require(segment.bytes() >= kWorldStretch, "descriptor {} is not weft's shared memory", fd);
  std::shared_ptr<ShmWorld> world(new ShmWorld(std::move(segment)));
  const Header& header = *world->header_;
  require(
      header.magic == kWorldMagic && header.num_ranks >= 1 && header.num_ranks <= kMaxLocalRanks,
      "descriptor {} is not weft's shared memory", fd);
  return world;
}

ShmWorld::ShmWorld(SharedSegment segment)
    : segment_(std::move(segment)),
      bases_(std::make_unique<std::atomic<char*>[]>(size_t{kMaxLocalRanks} * kMaxArenas)) {
  header_ = reinterpret_cast<Header*>(segment_.map_part(0, first_block()));
  mapped_bytes_.resize(size_t{kMaxLocalRanks} * kMaxArenas);
  processes_.resize(kMaxLocalRanks);
  for (size_t r = 0; r < processes_.size(); ++r) processes_[r] = header_->ranks[r].process.load();
  generation_ = header_->generation.value.load();
}

ShmWorld::~ShmWorld() {
  for (const Block& block : blocks_) unmap_part(block.part, block.bytes);
  for (int rank = 0; rank < kMaxLocalRanks; ++rank) unmap_arenas(rank);
  unmap_part(header_, first_block());
}

int64_t ShmWorld::first_block() const { return round_up(sizeof(Header), kLargestPage); }
int ShmWorld::num_ranks() const { return header_->num_ranks; }
int64_t ShmWorld::chunk_bytes() const { return header_->chunk_bytes; }
int64_t ShmWorld::deadline_ms() const {
  return header_->num_patient.load() > 0 ? kPatientMs : header_->deadline_ms.load();
}
void ShmWorld::set_deadline_ms(int64_t deadline_ms) { header_->deadline_ms.store(deadline_ms); }
int64_t ShmWorld::hang_ms() const { return header_->deadline_ms.load(); }
void ShmWorld::add_no_deadline(int change) { header_->num_patient += change; }

std::atomic<char*>& ShmWorld::base(int rank, int arena) const {
  return bases_[static_cast<size_t>(rank * kMaxArenas + arena)];
}

char* ShmWorld::map_arena(int rank, int index, const Arena& arena) {
  char* part = segment_.map_part(arena.offset, arena.bytes);
  mapped_bytes_[static_cast<size_t>(rank * kMaxArenas + index)] = arena.bytes;
  base(rank, index).store(part, std::memory_order_release);
  return part;
}

void ShmWorld::unmap_arenas(int rank) {
  for (int i = 0; i < kMaxArenas; ++i) {
    char* part = base(rank, i).exchange(nullptr);
    unmap_part(part, mapped_bytes_[static_cast<size_t>(rank * kMaxArenas + i)]);
  }
}

void* ShmWorld::take_arena(int rank, int64_t bytes) {
  Header::Rank& entry = header_->ranks[rank];
  const uint32_t index = entry.num_arenas.load(std::memory_order_relaxed);
  ensure(index < kMaxArenas,
         fmt::format("rank {} allocates more than {} arenas", rank, kMaxArenas));
  int64_t offset = kWorldStretch * (rank + 1);
  if (index > 0) offset = entry.arenas[index - 1].offset + entry.arenas[index - 1].bytes;
  Arena& arena = entry.arenas[index];
  arena.offset = offset;
  arena.bytes = round_up(std::max<int64_t>(bytes, 1), kHugePage);
  ensure(offset + arena.bytes <= kWorldStretch * (rank + 2), "arenas exceed the rank's stretch");
  const std::lock_guard lock(mutex_);
  char* part = map_arena(rank, static_cast<int>(index), arena);
  entry.num_arenas.store(index + 1, std::memory_order_release);
  return part;
}

int64_t ShmWorld::locate(int rank, const void* data, int64_t bytes) const {
  const Header::Rank& entry = header_->ranks[rank];
  const uint32_t count = entry.num_arenas.load(std::memory_order_acquire);
  for (uint32_t i = 0; i < count; ++i) {
    const char* start = base(rank, static_cast<int>(i)).load(std::memory_order_acquire);
    if (start == nullptr) continue;
    const int64_t distance = static_cast<const char*>(data) - start;
    if (distance >= 0 && distance + bytes <= entry.arenas[i].bytes) {
      return entry.arenas[i].offset + distance;
    }
  }
  return kPrivate;
}

char* ShmWorld::pointer(int rank, int64_t location) {
  const Header::Rank& entry = header_->ranks[rank];
  const uint32_t count = entry.num_arenas.load(std::memory_order_acquire);
  for (uint32_t i = 0; i < count; ++i) {
    const Arena& arena = entry.arenas[i];
    if (location < arena.offset || location >= arena.offset + arena.bytes) continue;
    std::atomic<char*>& here = base(rank, static_cast<int>(i));
    char* start = here.load(std::memory_order_acquire);
    if (start == nullptr) {
      const std::lock_guard lock(mutex_);
      start = here.load(std::memory_order_acquire);
      if (start == nullptr) start = map_arena(rank, static_cast<int>(i), arena);
    }
    return start + (location - arena.offset);
  }
  throw BugError(fmt::format("no arena of rank {} holds location {}", rank, location));
}

int64_t ShmWorld::new_block(int64_t bytes) {
  const int64_t size = round_up(bytes, kLargestPage);
  const int64_t offset = header_->next_block.fetch_add(size);
  ensure(offset + size <= kWorldStretch, "no space for another group");
  return offset;
}

char* ShmWorld::map_block(int64_t offset, int64_t bytes) {
  const std::lock_guard lock(mutex_);
  for (const Block& block : blocks_) {
    if (block.offset == offset) return block.part;
  }
  const int64_t size = round_up(bytes, kLargestPage);
  blocks_.push_back({offset, size, segment_.map_part(offset, size)});
  return blocks_.back().part;
}

void ShmWorld::abort(const std::string& reason, bool has_waited) {
  if (has_waited && !is_aborted()) header_->has_waited.store(true);
  header_->aborted.write(reason);
}
bool ShmWorld::has_waited() const { return header_->has_waited.load(); }
bool ShmWorld::is_aborted() const { return header_->aborted.is_begun(); }
std::string ShmWorld::abort_reason() const { return header_->aborted.read(); }

bool ShmWorld::wait_a_while(SharedWord& word, uint32_t target) const {
  if (word.has_reached(target)) return true;
  if (is_aborted()) return false;
  if (header_->spin != 0 && spin_on(word, target)) return true;
  sleep_on(word, target, std::min(kMaxSleepMs, std::max<int64_t>(1, deadline_ms() / 4)));
  return word.has_reached(target);
}

namespace {
enum Stage { kStarting = 0, kSaving = 1, kOver = 2 };
}

bool ShmWorld::request_stop(int signal) {
  int stage = kStarting;
  if (header_->stage.compare_exchange_strong(stage, kOver)) return false;
  header_->stop.store(signal);
  return stage == kSaving;
}

bool ShmWorld::begin_saving() const {
  int stage = kStarting;
  return header_->stage.compare_exchange_strong(stage, kSaving) || stage == kSaving;
}

const std::atomic<int>& ShmWorld::stop_word() const { return header_->stop; }

void ShmWorld::refuse_regroup() {
  int word = kRegroup;
  header_->stop.compare_exchange_strong(word, 0);
}

void ShmWorld::note_failure(int rank, const std::string& message) {
  header_->ranks[rank].failure.write(message);
}

std::optional<std::string> ShmWorld::failure(int rank) const {
  const OnceText& text = header_->ranks[rank].failure;
  return text.is_begun() ? std::optional(text.read()) : std::nullopt;
}

void ShmWorld::set_recovers(bool recovers) { header_->recovers.store(recovers); }
bool ShmWorld::recovers() const { return header_->recovers.load(); }
uint32_t ShmWorld::generation() const { return generation_; }
uint32_t ShmWorld::current_generation() const { return header_->generation.value.load(); }
void ShmWorld::set_run_generation(int64_t generation) { header_->run_generation.store(generation); }
int64_t ShmWorld::run_generation() const {
  const int64_t given = header_->run_generation.load();
  return given >= 0 ? given : int64_t{generation_};
}
void ShmWorld::note_memory_fault(const std::string& why) { header_->memory_fault.write(why); }
std::string ShmWorld::memory_fault() const {
  return header_->memory_fault.is_begun() ? header_->memory_fault.read() : "";
}
int64_t ShmWorld::start_step() const { return header_->start_step.load(); }
void ShmWorld::set_store(const std::string& endpoint) {
  ensure(endpoint.size() < sizeof header_->store, "the store's address is too long");
  std::memcpy(header_->store, endpoint.c_str(), endpoint.size() + 1);
}
std::string ShmWorld::store() const { return header_->store; }
void ShmWorld::set_previous_slots(bool are_there) { header_->has_previous_slots.store(are_there); }
bool ShmWorld::has_previous_slots() const { return header_->has_previous_slots.load(); }
void ShmWorld::note_loaded() { header_->has_loaded.store(true); }
bool ShmWorld::has_loaded() const { return header_->has_loaded.load(); }
void ShmWorld::set_lease(int64_t until_ms) { header_->lease_ms.store(until_ms); }
int64_t ShmWorld::lease_ms() const { return header_->lease_ms.load(); }
void ShmWorld::note_held(int rank, bool is_held) { header_->ranks[rank].is_held.store(is_held); }
bool ShmWorld::is_held(int rank) const { return header_->ranks[rank].is_held.load(); }
void ShmWorld::note_step(int64_t step) {
  header_->last_step.store(step);
  header_->has_stepped.store(true);
}
bool ShmWorld::has_stepped() const { return header_->has_stepped.load(); }
int64_t ShmWorld::last_step() const { return header_->last_step.load(); }
void ShmWorld::note_saved() { header_->has_saved.store(true); }
bool ShmWorld::has_saved() const { return header_->has_saved.load(); }
void ShmWorld::note_opened() { header_->is_opened.store(true); }
bool ShmWorld::is_opened() const { return header_->is_opened.load(); }
Heartbeat& ShmWorld::heartbeat(int rank) const { return header_->ranks[rank].heartbeat; }
void ShmWorld::note_finishing() { header_->is_finishing.store(true); }
bool ShmWorld::is_finishing() const { return header_->is_finishing.load(); }
void ShmWorld::note_death(int64_t at_ms) { header_->death_ms.store(at_ms); }
int64_t ShmWorld::death_ms() const { return header_->death_ms.load(); }

bool ShmWorld::park(int rank) {
  const uint32_t next = generation_ + 1;
  header_->ranks[rank].parked.store(next);
  while (!header_->generation.has_reached(next)) {
    if (!recovers()) return false;
    sleep_on(header_->generation, next, kMaxSleepMs);
  }
  generation_ = header_->generation.value.load();
  forget_mappings();
  return true;
}

bool ShmWorld::is_parked(int rank) const {
  return header_->ranks[rank].parked.load() == header_->generation.value.load() + 1;
}

// The offsets of blocks mean other groups now; arenas stay, except those of replaced processes.
void ShmWorld::forget_mappings() {
  const std::lock_guard lock(mutex_);
  for (const Block& block : blocks_) unmap_part(block.part, block.bytes);
  blocks_.clear();
  for (int r = 0; r < kMaxLocalRanks; ++r) {
    const uint32_t process = header_->ranks[r].process.load();
    if (std::exchange(processes_[static_cast<size_t>(r)], process) == process) continue;
    unmap_arenas(r);
  }
}

void ShmWorld::reset(const std::vector<int>& dead, int64_t step) {
  for (const int r : dead) {
    Header::Rank& rank = header_->ranks[r];
    rank.num_arenas.store(0);
    rank.failure.clear();
    rank.has_ended.store(false);
    rank.is_held.store(false);
    rank.parked.store(0);
    ++rank.process;
    segment_.release(kWorldStretch * (r + 1), kWorldStretch);
  }
  segment_.release(first_block(), kWorldStretch - first_block());
  header_->next_block.store(kWorldStretch / 2);
  header_->num_patient.store(0);
  header_->is_finishing.store(false);
  header_->has_stepped.store(false);
  header_->has_waited.store(false);
  header_->start_step.store(step);
  header_->aborted.clear();
  header_->memory_fault.clear();
  refuse_regroup();  // who grows asks again
  generation_ = header_->generation.value.load() + 1;
  set_and_wake(header_->generation, generation_);
}

void ShmWorld::note_ended(int rank) { header_->ranks[rank].has_ended.store(true); }
bool ShmWorld::has_ended(int rank) const { return header_->ranks[rank].has_ended.load(); }

}  // namespace weft
