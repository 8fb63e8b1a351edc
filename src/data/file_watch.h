// data/file_watch.h: checks that data files have not changed since they were opened.
#pragma once

#include <chrono>
#include <vector>

#include "io/file_system.h"

namespace weft {

// How long to retry a file that cannot be checked for a reason other than absence (a network file
// system that is briefly unavailable).
inline constexpr std::chrono::milliseconds kRetryFor{5000};

// RunError naming a file that changed: truncated, rewritten, replaced, removed, or unreadable for
// `retry_for`. Also for what check_mapped_files() finds.
void check_unchanged(const std::vector<FileInfo>& files,
                     std::chrono::milliseconds retry_for = kRetryFor);

// The same for only the local files, or only the others: each check of those is a request.
void check_local_unchanged(std::vector<FileInfo> files);
void check_remote_unchanged(std::vector<FileInfo> files);

// The same, rate-limited for frequent callers: after a check that took t the next one is at least
// 100 t later, so that checks take at most 1 % of the time.
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
