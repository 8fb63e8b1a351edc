// train/status_file.h: what a run is doing, once per second in DIR/.status.json.
//
// docs/design/0019-status.md. The supervisor writes it, or the process of a run of one rank; it is
// replaced as a whole, and never synced: what it says is of this second or of no use. A thread
// writes it, so that nobody waits for a disk that hangs.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <filesystem>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "launch/job_status.h"

namespace weft {

inline constexpr const char* kStatusFile = ".status.json";
inline constexpr size_t kMostStatusBytes = 1 << 20;  // that are read of it

class StatusFile {
 public:
  StatusFile(std::filesystem::path dir, std::optional<int64_t> planned_bytes)
      : dir_(std::move(dir)), planned_bytes_(planned_bytes) {}
  ~StatusFile();  // writes what was handed over
  StatusFile(const StatusFile&) = delete;
  StatusFile& operator=(const StatusFile&) = delete;

  // Hands it over; one that is not written yet is replaced. Nothing is written before the directory
  // is the run's, or it is announced. A failure is logged once.
  void write(const JobStatus& status);
  void flush();  // until it is written
  // How the run ended; where it was written before. What was there before a run that was refused
  // (exit code 2) is restored.
  void end(int exit_code, const std::string& cause);

 private:
  void work();
  void stop();
  void announce();
  void restore();
  void put(const JobStatus& status, std::optional<int> exit_code);

  std::filesystem::path dir_;
  std::optional<int64_t> planned_bytes_;
  JobStatus last_;
  int64_t count_ = 0;
  bool has_failed_ = false;
  bool has_announced_ = false;         // written before the directory was the run's
  std::optional<std::string> before_;  // what it has replaced then
  std::mutex mutex_;
  std::condition_variable changed_;
  std::optional<JobStatus> next_;
  bool is_writing_ = false, is_ending_ = false, has_no_thread_ = false;
  std::thread thread_;
};

// When the process was started, in ticks since the machine was: with its number it names a process
// for good. 0 where there is none, or only a zombie.
int64_t start_ticks(pid_t pid);

}  // namespace weft
