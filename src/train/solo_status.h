// train/solo_status.h: the status of a run of one rank, which has no supervisor to write it.
#pragma once

#include <semaphore.h>

#include <atomic>
#include <filesystem>
#include <optional>
#include <thread>

#include "train/rank_place.h"
#include "train/run_dir.h"
#include "train/status_file.h"

namespace weft {

// A thread that reads the heartbeat once per second. It also records the end by a second signal,
// because a signal handler cannot.
class SoloStatus {
 public:
  SoloStatus(std::filesystem::path dir, std::optional<int64_t> planned_bytes);
  ~SoloStatus();  // stops the thread
  SoloStatus(const SoloStatus&) = delete;
  SoloStatus& operator=(const SoloStatus&) = delete;

  Heartbeat* heartbeat() { return &heartbeat_; }
  void end(int exit_code, const std::string& cause);  // stops the thread

 private:
  void work();
  void stop();
  [[noreturn]] void end_by_signal();
  JobStatus status() const;

  Heartbeat heartbeat_{};
  const std::filesystem::path dir_;
  const std::optional<std::filesystem::file_time_type> before_;  // time of the last event
  StatusFile file_;
  std::atomic<bool> is_ending_ = false;
  sem_t woken_;  // posted by stop() or a second signal
  std::thread thread_;
};

// train_rank() of a rank that no supervisor watches.
int train_with_status(const RunFile& file, const TrainOptions& options, RankPlace place,
                      std::optional<int64_t> planned_bytes);

}  // namespace weft
