// train/run_lock.h: one process at a time writes into a run directory.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>

#include "train/lease.h"

namespace weft {

// How a directory is shared between machines; by default it is found out.
struct SharedStorage {
  std::optional<bool> is_shared;
  LeaseTimes times;
};

// Held while a run decides where it starts and while it writes; released however the process ends.
// On a network file system, whose flock may not reach other machines, it is also a lease
// (DIR/.lease).
class RunLock {
 public:
  // Creates the directory. UserError naming host and pid where another process holds it, or where
  // the storage cannot be written; RunError for other system errors.
  explicit RunLock(const std::filesystem::path& dir, const SharedStorage& shared = {});
  // Null where the storage cannot be written: a finished run is reported without it.
  static std::shared_ptr<RunLock> try_on(const std::filesystem::path& dir);
  ~RunLock();
  RunLock(const RunLock&) = delete;
  RunLock& operator=(const RunLock&) = delete;

  // RunError where a process of another machine has taken the directory over.
  void check();
  int fd() const { return fd_; }
  // The lease alone: for a process that gets this lock (net/kept_lock.h) and takes one of its own.
  void release_lease() { lease_.reset(); }
  bool is_lost() { return lease_ && lease_->is_lost(); }  // as far as its heartbeat knows

 private:
  RunLock() = default;
  int open(const std::filesystem::path& dir, const SharedStorage& shared);  // errno, or 0
  int fd_ = -1;
  std::unique_ptr<Lease> lease_;  // null: the directory is on this machine
};

// NFS, Lustre, GPFS, SMB, FUSE ...: false where it cannot be determined.
bool is_on_network(const std::filesystem::path& dir);

// UserError where the path is impossible on any system.
void check_length(const std::filesystem::path& dir);
// UserError where `dir` could not be created or written into: checked without writing.
void check_can_write(const std::filesystem::path& dir);

}  // namespace weft
