// train/save_lane.cpp: jobs in order; after a failed one the rest is skipped.
#include "train/save_lane.h"

#include <system_error>
#include <utility>

#include "base/log.h"

namespace weft {

SaveLane::~SaveLane() {
  if (!thread_.joinable()) return;
  {
    const std::lock_guard lock(mutex_);
    is_ending_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

int64_t SaveLane::post(std::function<void()> job) {
  const bool has_thread = start();
  std::unique_lock lock(mutex_);
  ++num_posted_;
  jobs_.push_back(std::move(job));
  if (has_thread) {
    changed_.notify_all();
  } else {
    run_first(lock);
  }
  return num_posted_;
}

bool SaveLane::start() {
  if (thread_.joinable()) return true;
  if (!can_start_) return false;
  try {
    thread_ = std::thread([this] { work(); });
  } catch (const std::system_error& e) {  // a limit on threads or memory
    log_warning("no thread for saves ({}): training waits for each of them", e.what());
    can_start_ = false;
  }
  return can_start_;
}

void SaveLane::wait_for(int64_t number) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return num_done_ >= number; });
  if (error_) std::rethrow_exception(error_);
}

bool SaveLane::wait_for(int64_t number, std::chrono::milliseconds most) {
  std::unique_lock lock(mutex_);
  const bool is_done = changed_.wait_for(lock, most, [&] { return num_done_ >= number; });
  if (error_) std::rethrow_exception(error_);
  return is_done;
}

// The first job of the queue. The lock is held, except while the job runs.
void SaveLane::run_first(std::unique_lock<std::mutex>& lock) {
  const std::function<void()> job = std::move(jobs_.front());
  jobs_.pop_front();
  if (!error_) {
    lock.unlock();
    std::exception_ptr error;
    try {
      job();
    } catch (...) {
      error = std::current_exception();
    }
    lock.lock();
    error_ = error;
  }
  ++num_done_;
  changed_.notify_all();
}

void SaveLane::work() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [&] { return is_ending_ || !jobs_.empty(); });
    if (jobs_.empty()) return;
    run_first(lock);
  }
}

}  // namespace weft
