// train/solo_status.cpp: a second at a time.
#include "train/solo_status.h"

#include <unistd.h>

#include <cerrno>
#include <ctime>
#include <system_error>
#include <utility>

#include "launch/job.h"
#include "train/fault_events.h"
#include "train/signals.h"
#include "train/trainer.h"

namespace weft {
namespace {

// Returns false on a timeout of one second.
bool wait_a_second(sem_t* woken) {
  timespec end{};
  ::clock_gettime(CLOCK_MONOTONIC, &end);
  ++end.tv_sec;
  int failed = 0;
  while ((failed = ::sem_clockwait(woken, CLOCK_MONOTONIC, &end)) != 0 && errno == EINTR) {
  }
  return failed == 0;
}

}  // namespace

SoloStatus::SoloStatus(std::filesystem::path dir, std::optional<int64_t> planned_bytes)
    : dir_(std::move(dir)), before_(last_event_time(dir_)), file_(dir_, planned_bytes) {
  heartbeat_.clear();
  ::sem_init(&woken_, 0, 0);
  try {
    thread_ = std::thread([this] { work(); });
    StopSignals::record_second_by(&woken_);
  } catch (const std::system_error&) {  // no thread, no status: the run does not need it
  }
}

SoloStatus::~SoloStatus() {
  stop();
  ::sem_destroy(&woken_);
}

void SoloStatus::stop() {
  StopSignals::record_second_by(nullptr);
  is_ending_ = true;
  ::sem_post(&woken_);
  if (thread_.joinable()) thread_.join();
}

void SoloStatus::work() {
  while (!is_ending_) {
    if (!wait_a_second(&woken_))
      file_.write(status());
    else if (!is_ending_)
      end_by_signal();
  }
}

// The main thread keeps running, so events.jsonl is appended to without taking the lock.
void SoloStatus::end_by_signal() {
  if (last_event_time(dir_) != before_) report_cut_off(dir_, kCutOffWords);
  file_.write(status());
  file_.end(kTrainWords.second_exit, kCutOffWords);
  StopSignals::end_recorded();
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
  SoloStatus status(dir, planned_bytes);
  const auto before = last_event_time(dir);
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
