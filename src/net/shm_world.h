// net/shm_world.h: what the ranks of one machine share: arenas, an abort flag, a deadline.
//
// One segment holds everything: a header, control blocks (counters and staging areas of groups,
// owned by comm), and for every rank a wide stretch for its arenas. The supervisor creates it;
// ranks inherit its descriptor. Ranks that are threads share one object.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "net/deadline.h"
#include "net/futex.h"
#include "net/heartbeat.h"
#include "net/shared_segment.h"

namespace weft {

inline constexpr int kMaxLocalRanks = 256;
inline constexpr int kMaxArenas = 32;  // per rank

struct WorldOptions {
  int num_ranks = 1;
  int64_t deadline_ms = kDeadlineMs;  // of every call
  // Spin before sleeping: useful where every thread of the job has its own core.
  bool spin = false;
  // Bytes that a rank stages at a time; tests lower it to get many chunks from little data.
  int64_t chunk_bytes = 256 << 10;
};

class ShmWorld {
 public:
  static std::shared_ptr<ShmWorld> create(const WorldOptions& options);
  static std::shared_ptr<ShmWorld> attach(int fd);
  ~ShmWorld();
  ShmWorld(const ShmWorld&) = delete;
  ShmWorld& operator=(const ShmWorld&) = delete;

  int fd() const { return segment_.fd(); }
  int num_ranks() const;
  int64_t chunk_bytes() const;
  int64_t deadline_ms() const;                // kPatientMs while any rank is in a ScopedNoDeadline
  void set_deadline_ms(int64_t deadline_ms);  // for all ranks, from their next wait
  int64_t hang_ms() const;                    // the deadline, whoever may work for long
  // 1 before a call that may wait for long work of a peer, -1 after it. A count, since ranks do not
  // leave a call at the same time.
  void add_no_deadline(int change);

  // Zeroed memory of this rank that its peers can read and write too. It lives as long as the
  // world; a rank may allocate up to kMaxArenas.
  [[nodiscard]] void* take_arena(int rank, int64_t bytes);
  // The bytes' location in the segment if they are in an arena of this rank; else kPrivate.
  static constexpr int64_t kPrivate = -1;
  int64_t locate(int rank, const void* data, int64_t bytes) const;
  // Such a location in this process's memory; an arena is mapped on first use.
  char* pointer(int rank, int64_t location);

  // Zeroed memory for a group's counters; other processes map it by its offset. Threads that map
  // the same block get the same pointer. Blocks live as long as the world.
  int64_t new_block(int64_t bytes);
  char* map_block(int64_t offset, int64_t bytes);
  int64_t first_block() const;  // exists from the start

  // Ends every wait in this world, now and later. The first reason is kept. has_waited: it is that
  // a rank has waited for another until its deadline.
  void abort(const std::string& reason, bool has_waited = false);
  bool is_aborted() const;
  bool has_waited() const;  // whether that was the first reason
  std::string abort_reason() const;

  // Waits for at most 20 ms; returns whether the target was reached. Between calls the caller
  // checks abort, deadline and whatever else may end its wait.
  [[nodiscard]] bool wait_a_while(SharedWord& word, uint32_t target) const;

  // The supervisor asks the ranks to save and end. False where they have nothing to save yet: they
  // never will, and can be killed at once.
  [[nodiscard]] bool request_stop(int signal);
  // Called by the ranks before the first of them writes anything: from here on a stop waits for
  // them. False where a stop came first: the supervisor is ending the job.
  [[nodiscard]] bool begin_saving() const;
  const std::atomic<int>& stop_word() const;  // the signal; 0: none
  void refuse_regroup();  // ranks that were asked to end for a larger layout go on

  // A rank's final error, for the supervisor to report; a rank's first one is kept.
  void note_failure(int rank, const std::string& message);
  std::optional<std::string> failure(int rank) const;

  // The supervisor has seen the rank exit without a failure: waiting for it is futile.
  void note_ended(int rank);
  bool has_ended(int rank) const;

  // Recovery (docs/design/0015-survive.md). While it recovers, a rank that loses its peers parks
  // instead of ending; the supervisor resets the world when every rank is parked or dead, which
  // begins the next generation.
  void set_recovers(bool recovers);
  bool recovers() const;
  uint32_t generation() const;          // of this process: when it attached, or was last unparked
  uint32_t current_generation() const;  // of the world, now
  // As users count them: those of the run's supervisor, whose nodes' worlds may be younger than the
  // run. Without one that was set, generation().
  void set_run_generation(int64_t generation);
  int64_t run_generation() const;
  // A rank cannot continue from the snapshots: not for want of another rank, but since they cannot
  // be read. Until the next generation; the first reason is kept. "": none.
  void note_memory_fault(const std::string& why);
  std::string memory_fault() const;
  // Nothing of this process touches the world any more. Waits for the next generation; false where
  // there will be none.
  [[nodiscard]] bool park(int rank);
  bool is_parked(int rank) const;
  // By the supervisor: groups start anew, `dead` ranks have neither arenas nor failures. step: from
  // which all continue, in their snapshots; -1: from storage.
  void reset(const std::vector<int>& dead, int64_t step);
  int64_t start_step() const;
  // Of a node of several: the store of the generation, set before reset or the first rank.
  void set_store(const std::string& endpoint);
  std::string store() const;  // "": none was set
  // Likewise: whether agents still have the slots of the previous layout, from which its ranks load
  // (docs/design/0022-elastic.md). They are freed once a rank has noted that all have loaded.
  void set_previous_slots(bool are_there);
  bool has_previous_slots() const;
  void note_loaded();
  bool has_loaded() const;
  // Likewise: until when its ranks may run, of boot_ms(); its agent renews it. 0: without end.
  void set_lease(int64_t until_ms);
  int64_t lease_ms() const;
  // A rank that stood still until its lease was over has stopped itself, and waits for its agent.
  void note_held(int rank, bool is_held);
  bool is_held(int rank) const;
  // How far the run is: the last step that a rank has completed, and whether this job has a
  // checkpoint of its own to start again from.
  void note_step(int64_t step);
  int64_t last_step() const;
  bool has_stepped() const;  // a step was completed since the world was made or reset
  void note_saved();
  bool has_saved() const;
  // The run directory is this job's: the supervisor may write into it.
  void note_opened();
  bool is_opened() const;
  // Rank 0 needs no other rank to finish the run.
  void note_finishing();
  bool is_finishing() const;
  // What a rank does and how far it is; of every rank, for its supervisor.
  Heartbeat& heartbeat(int rank) const;
  // When a rank of the last generation died, of CLOCK_MONOTONIC.
  void note_death(int64_t at_ms);
  int64_t death_ms() const;

 private:
  struct Header;
  struct Arena;
  struct Block {
    int64_t offset, bytes;
    char* part;
  };
  explicit ShmWorld(SharedSegment segment);
  std::atomic<char*>& base(int rank, int arena) const;
  char* map_arena(int rank, int index, const Arena& arena);  // under the lock
  void unmap_arenas(int rank);
  void forget_mappings();

  SharedSegment segment_;
  Header* header_ = nullptr;
  std::mutex mutex_;  // guards mapping
  std::vector<Block> blocks_;
  // Where the arenas of all ranks are in this process; null until mapped.
  std::unique_ptr<std::atomic<char*>[]> bases_;
  std::vector<int64_t> mapped_bytes_;  // of those
  std::vector<uint32_t> processes_;    // of every rank, whose arenas they are
  uint32_t generation_ = 0;
};

}  // namespace weft
