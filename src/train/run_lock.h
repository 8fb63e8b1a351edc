// train/run_lock.h: one process at a time writes into a run directory.
#pragma once

#include <filesystem>
#include <memory>

namespace weft {

// Held while a run decides where it starts and while it writes; released however the process ends.
class RunLock {
 public:
  // Creates the directory. UserError where another process holds it, or where the storage cannot be
  // written; RunError for other system errors.
  explicit RunLock(const std::filesystem::path& dir);
  // Null where the storage cannot be written: a finished run is reported without it.
  static std::shared_ptr<RunLock> try_on(const std::filesystem::path& dir);
  ~RunLock();
  RunLock(const RunLock&) = delete;
  RunLock& operator=(const RunLock&) = delete;

 private:
  RunLock() = default;
  int open(const std::filesystem::path& dir);  // the reason (errno), or 0
  int fd_ = -1;
};

// UserError where the path is impossible on any system.
void check_length(const std::filesystem::path& dir);
// UserError where `dir` could not be created or written into: checked without writing.
void check_can_write(const std::filesystem::path& dir);

}  // namespace weft
