// net/kept_lock.h: a file lock that outlives the process that took it.
//
// A lock by flock belongs to the open file, which lives as long as any process has a descriptor of
// it, or one is on its way through a socket. Rank 0 sends the supervisor a descriptor of its lock,
// and whoever replaces it gets it back: between the two nobody else can take the run's directory.
// Of a run on several nodes the supervisor holds the lock from its start, also while it waits for
// nodes, and the first node's agent inherits a descriptor for its ranks.
#pragma once

#include <sys/types.h>

#include <filesystem>

namespace weft {

// The supervisor's side.
class LockKeeper {
 public:
  // With the lock that this process has inherited (kHeldLockVariable), where it has. RunError where
  // there are no descriptors.
  LockKeeper();
  ~LockKeeper();
  LockKeeper(const LockKeeper&) = delete;
  LockKeeper& operator=(const LockKeeper&) = delete;

  int fd() const { return theirs_; }  // for a rank to inherit (kLockFdVariable)
  void hand_on();                     // before a rank is started: it can take what was kept

 private:
  int ours_ = -1, theirs_ = -1;
  int kept_ = -1;  // the lock; -1: there was none yet
};

inline constexpr const char* kLockFdVariable = "WEFT_LOCK_FD";
inline constexpr const char* kHeldLockVariable = "WEFT_HELD_LOCK_FD";
inline constexpr const char* kRunPidVariable = "WEFT_RUN_PID";  // of the supervisor

// The rank's side; without a supervisor nothing is kept.
void keep_lock(int fd);
// A descriptor of the lock on that file which this process or its predecessor has kept; -1: none.
int take_kept_lock(const std::filesystem::path& file);
// The process that was started by a user, and ends the run where it is asked to: the supervisor of
// a rank that holds the lock, or this one.
pid_t run_pid();

}  // namespace weft
