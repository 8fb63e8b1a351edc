// train/solo_status.cpp: a second at a time.
#include "train/solo_status.h"

#include <unistd.h>

#include <chrono>
#include <system_error>
#include <utility>

#include "train/fault_events.h"
#include "train/trainer.h"

namespace weft {

SoloStatus::SoloStatus(std::filesystem::path dir, std::optional<int64_t> planned_bytes)
    : file_(std::move(dir), planned_bytes) {
  heartbeat_.clear();
  try {
    thread_ = std::thread([this] { work(); });
  } catch (const std::system_error&) {  // no thread, no status: the run does not need it
  }
}

SoloStatus::~SoloStatus() { stop(); }

void SoloStatus::stop() {
  {
    const std::lock_guard lock(mutex_);
    is_ending_ = true;
  }
  ended_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void SoloStatus::work() {
  std::unique_lock lock(mutex_);
  while (!ended_.wait_for(lock, std::chrono::seconds(1), [this] { return is_ending_; }))
    file_.write(status());
}

// The phase leaves `starting` when the directory is the run's.
JobStatus SoloStatus::status() const {
  JobStatus s;
  s.ranks.push_back({::getpid(), true, heartbeat_.read()});
  s.is_opened = s.ranks[0].sign.phase != Phase::kStarting;
  return s;
}

void SoloStatus::end(int exit_code, const std::string& cause) {
  stop();
  file_.write(status());
  file_.end(exit_code, cause);
}

int train_with_status(const RunFile& file, const TrainOptions& options, RankPlace place,
                      std::optional<int64_t> planned_bytes) {
  const std::filesystem::path dir = run_dir_of(file.config(), options);
  const auto before = last_event_time(dir);
  SoloStatus status(dir, planned_bytes);
  place.heartbeat = status.heartbeat();
  try {
    const int code = train_rank(file, options, place);
    status.end(code, "");
    return code;
  } catch (const std::exception& e) {  // main reports it
    // A rejected start has written nothing, and the directory may belong to another run.
    if (last_event_time(dir) != before) report_failure(dir, {"rank failed", place.rank, e.what()});
    status.end(1, e.what());
    throw;
  }
}

}  // namespace weft
