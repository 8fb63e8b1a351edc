// train/solo_status.h: the status of a run of one rank, which has no supervisor to write it.
#pragma once

#include <condition_variable>
#include <mutex>
#include <thread>

#include "train/rank_place.h"
#include "train/run_dir.h"
#include "train/status_file.h"

namespace weft {

// A thread that reads the heartbeat once per second.
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
  JobStatus status() const;

  Heartbeat heartbeat_{};
  StatusFile file_;
  std::mutex mutex_;
  std::condition_variable ended_;
  bool is_ending_ = false;
  std::thread thread_;
};

// train_rank() of a rank that no supervisor watches.
int train_with_status(const RunFile& file, const TrainOptions& options, RankPlace place,
                      std::optional<int64_t> planned_bytes);

}  // namespace weft
