// train/status_file.h: what a run is doing, once per second in DIR/.status.json.
//
// docs/design/0019-status.md. The supervisor writes it, or the process of a run of one rank; it is
// replaced as a whole, and never synced: what it says is of this second or of no use.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "launch/job_status.h"

namespace weft {

inline constexpr const char* kStatusFile = ".status.json";

class StatusFile {
 public:
  StatusFile(std::filesystem::path dir, std::optional<int64_t> planned_bytes)
      : dir_(std::move(dir)), planned_bytes_(planned_bytes) {}

  // Nothing is written before the directory is the run's. A failure is logged once.
  void write(const JobStatus& status);
  // How the run ended; where it was written before.
  void end(int exit_code, const std::string& cause);

 private:
  void put(const JobStatus& status, std::optional<int> exit_code);

  std::filesystem::path dir_;
  std::optional<int64_t> planned_bytes_;
  JobStatus last_;
  int64_t count_ = 0;
  bool has_failed_ = false;
};

// When the process was started, in ticks since the machine was: with its number it names a process
// for good. 0 where there is none, or only a zombie.
int64_t start_ticks(pid_t pid);

}  // namespace weft
