// data/file_watch.h: whether data files are still as they were when they were opened.
#pragma once

#include <chrono>
#include <vector>

#include "io/file_system.h"

namespace weft {

// A file that cannot be looked at for another reason than that it is not there (a network file
// system that is away for a moment) is tried again for so long.
inline constexpr std::chrono::milliseconds kRetryFor{5000};

// RunError naming the file where one is not as it was: cut short, written again, replaced under its
// name, gone, or not to be looked at for `retry_for`. Also for what check_mapped_files() finds.
void check_unchanged(const std::vector<FileInfo>& files,
                     std::chrono::milliseconds retry_for = kRetryFor);

// The same of the local files alone, or of the others: each look at those is a request.
void check_local_unchanged(std::vector<FileInfo> files);
void check_remote_unchanged(std::vector<FileInfo> files);

// The same now and then, for who asks often: after a check that took t the next one is at least
// 100 t later, so that checks take at most a hundredth of the time.
class FileWatch {
 public:
  explicit FileWatch(std::vector<FileInfo> files);
  void check();
  int64_t num_checks() const { return num_checks_; }

 private:
  static constexpr std::chrono::milliseconds kEvery{200};
  std::vector<FileInfo> files_;
  std::chrono::steady_clock::time_point next_{};
  int64_t num_checks_ = 0;
};

}  // namespace weft
