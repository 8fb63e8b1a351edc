// launch/local_ranks.h: the ranks of this machine as processes, and the memory that outlives them.
//
// It starts, kills and reaps; what an end means is decided elsewhere (launch/job.cpp).
#pragma once

#include <sys/types.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "launch/job.h"
#include "launch/line_prefixer.h"
#include "net/kept_lock.h"
#include "net/shm_world.h"
#include "net/snapshot_slots.h"

namespace weft {

class LocalRanks {
 public:
  explicit LocalRanks(const JobOptions& options);  // which must outlive it
  ~LocalRanks();  // no rank survives it, unless the system cannot end it
  LocalRanks(const LocalRanks&) = delete;
  LocalRanks& operator=(const LocalRanks&) = delete;

  struct Process {
    pid_t pid = -1;
    bool is_running = false;
    bool was_killed = false;  // by us
    int64_t killed_ms = 0;    // when
    int status = 0;
    std::unique_ptr<LinePrefixer> out, err;
  };

  // Ranks are counted from 0 here, also on a node whose first rank is another one.
  int size() const { return static_cast<int>(ranks_.size()); }
  const Process& operator[](int rank) const { return ranks_[static_cast<size_t>(rank)]; }
  ShmWorld& world() { return *world_; }
  const ShmWorld& world() const { return *world_; }
  SnapshotSlots* slots() { return slots_.get(); }  // null: none were asked for
  std::shared_ptr<SnapshotSlots> shared_slots() const { return slots_; }

  int number(int rank) const { return first_rank_ + rank; }  // among those of all nodes

  void start(int rank);     // in place of one that has ended, if there was one
  std::vector<int> reap();  // those that have ended since the last call
  void kill(int rank);
  void kill_all();
  void send_all(int signal);  // to those that run
  bool is_any_running() const;
  // A rank that was killed JobOptions::unkillable_ms ago and has not ended: a system call that
  // nothing interrupts (a disk, a driver) holds it. It runs no code of ours any more.
  std::optional<int> find_unkillable() const;
  std::string describe_unkillable(int rank) const;
  int64_t shared_bytes() const;  // of the world and the slots, as far as they are in memory

  // Their output: what to poll, and passing on what has come.
  void add_descriptors(std::vector<int>* descriptors) const;
  void pump();
  void finish_output();

 private:
  bool is_unkillable(const Process& rank) const;
  std::unique_ptr<LinePrefixer> make_prefixer(int rank, int from, int to) const;

  const JobOptions& options_;
  const int first_rank_, num_ranks_;  // num_ranks_: of all nodes
  std::vector<std::string> argv_;
  std::shared_ptr<ShmWorld> world_;
  std::shared_ptr<SnapshotSlots> slots_;
  LockKeeper lock_keeper_;
  std::vector<Process> ranks_;
};

}  // namespace weft
